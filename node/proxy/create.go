package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node/audit"
	"github.com/gpu-mode/kbgen/node/docker"
	"github.com/gpu-mode/kbgen/schema/text"
)

// maxBody bounds a create: sixteen chunks of a payload are 1.5 MiB.
const maxBody = 4 << 20

// create makes the container that the slot gives for what was asked, after whatever
// the last job left behind is gone. The engine is asked in its newest version: in
// old ones some settings have another default, and a create has none of them.
func (p *Proxy) create(w http.ResponseWriter, c *call) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, c.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "creating a container: got more than %d bytes", maxBody)
		return
	}
	var a asked
	if err := json.Unmarshal(raw, &a); err != nil {
		refuse(w, http.StatusBadRequest, "creating a container: got a request that is not docker's: %s", shape(err))
		return
	}
	g, err := p.build(&a)
	if err != nil {
		p.Log("refused: %v", err)
		refuse(w, http.StatusForbidden, "%v", err)
		return
	}
	p.creating.Lock()
	defer p.creating.Unlock()
	if !p.cleared(w, c) {
		return
	}
	var made struct {
		ID       string `json:"Id"`
		Warnings []string
	}
	switch err := p.engine.Do(c.Context(), http.MethodPost, "/containers/create", nil, g, &made); {
	case err == nil:
		p.mu.Lock()
		clear(p.records) // of containers that were not started
		p.records[made.ID] = audit.Record{
			Slot: p.Slot.Name, Job: g.label("job_id"), Pipeline: g.label("pipeline_slug"), Build: g.label("build_number"), Step: g.label("step_key"), Image: g.Image,
		}
		p.mu.Unlock()
		p.Log("created container %.12s of image %s", made.ID, a.Image)
		answer(w, http.StatusCreated, made)
	case docker.Is(err, http.StatusNotFound): // would make the client pull
		refuse(w, http.StatusInternalServerError, "image %s is pinned to %s, which the engine does not have any more: kbnode image update %s", a.Image, g.Image, a.Image)
	default:
		refuse(w, http.StatusInternalServerError, "creating the container: %v", err)
	}
}

// clean removes the slot's containers and its jobs' directories.
func (p *Proxy) clean(w http.ResponseWriter, c *call) {
	p.creating.Lock()
	defer p.creating.Unlock()
	if !p.cleared(w, c) {
		return
	}
	if err := RemoveJobs(p.TempDir); err != nil {
		p.Stuck(c.Context(), err)
		refuse(w, http.StatusInternalServerError, leftBehind, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// share makes the files directly in jobs' directories readable for the agent's group.
// Only these files can be artifacts.
func (p *Proxy) share(w http.ResponseWriter, c *call) {
	p.creating.Lock()
	defer p.creating.Unlock()
	if !p.cleared(w, c) { // no process of a job's changes files from here on
		return
	}
	err := withRoot(p.TempDir, func(temp *os.Root) error {
		files, err := fs.Glob(temp.FS(), JobDirPrefix+"*/*")
		for _, name := range files {
			info, failed := temp.Lstat(name)
			if failed == nil && info.Mode().IsRegular() {
				failed = temp.Chmod(name, info.Mode().Perm()|0o440)
			}
			err = errors.Join(err, failed)
		}
		return err
	})
	if err != nil {
		refuse(w, http.StatusInternalServerError, "the job's files: %v", err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

const leftBehind = "removing what the last job left: %v"

// cleared removes the slot's containers, or answers why it could not.
func (p *Proxy) cleared(w http.ResponseWriter, c *call) bool {
	err := p.clear(c.Context())
	if _, said := errors.AsType[*docker.Error](err); said {
		p.Stuck(c.Context(), err)
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, leftBehind, err)
	}
	return err == nil
}

// shape says what is wrong with JSON and quotes none of it.
func shape(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return "field " + text.Line(e.Field, 100) + " is a " + text.Line(strings.Fields(e.Value + " ?")[0], 20)
	}
	return "no JSON object"
}

// clear removes the slot's containers and waits until all that is to be done after
// them is done.
func (p *Proxy) clear(ctx context.Context) error {
	n, err := p.engine.Reap(ctx, p.Slot.Label())
	if err != nil {
		return err
	}
	if n > 0 {
		p.Log("removed %d containers that were left", n)
	}
	return p.wait(ctx)
}

// watch calls Ended when the container has ended, once, however often it is started.
func (p *Proxy) watch(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watched[id] != nil {
		return
	}
	done := make(chan struct{})
	p.watched[id] = done
	record := p.records[id]
	delete(p.records, id)
	record.Began = time.Now().UTC()
	go func() { // ends with the container
		defer close(done)
		record.Status = p.awaitEnd(id)
		record.Ended = time.Now().UTC()
		if err := p.Audit(record); err != nil {
			p.Log("container %.12s: its record: %v", id, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), endedTime)
		defer cancel()
		if err := p.Ended(ctx); err != nil {
			p.Log("after container %.12s: %v", id, err)
		}
	}()
}

// awaitEnd waits until the container has stopped and returns its exit status, or -1
// if the status is unknown. A request without an answer does not mean that the
// container has stopped: the engine may be restarting while the container runs.
func (p *Proxy) awaitEnd(id string) int {
	for range 300 {
		status, err := p.engine.Wait(context.Background(), id, "not-running")
		_, gone := errors.AsType[*docker.Error](err)
		switch {
		case err == nil:
			p.Log("container %.12s has ended with %d", id, status)
			return status
		case gone:
			p.Log("container %.12s has ended", id)
			return -1
		}
		time.Sleep(time.Second)
	}
	p.Log("container %.12s: the engine does not answer any more", id)
	return -1
}

// wait returns when Ended has returned for every container that was started.
func (p *Proxy) wait(ctx context.Context) error {
	for {
		p.mu.Lock()
		var id string
		var done chan struct{}
		for id, done = range p.watched {
			break
		}
		p.mu.Unlock()
		if done == nil {
			return nil
		}
		select {
		case <-done:
			p.mu.Lock()
			delete(p.watched, id)
			p.mu.Unlock()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// info says of the engine what a client may need to decide how to speak. The rest,
// such as the number of containers and the registries, is the machine's own.
func (p *Proxy) info(w http.ResponseWriter, c *call) {
	var of struct {
		ServerVersion, OSType, Architecture, OperatingSystem, KernelVersion string
		SecurityOptions                                                     []string
	}
	if err := p.engine.Do(c.Context(), http.MethodGet, "/info", nil, nil, &of); err != nil {
		refuse(w, http.StatusBadGateway, "%v", err)
		return
	}
	answer(w, http.StatusOK, of)
}

// noneID takes the place of the network's ID, which says nothing to anybody.
var noneID = strings.Repeat("0", 63) + "1"

// networks lists the one network there is here. The docker plugin looks for the
// network that its step names, and makes it when it is not listed.
func (p *Proxy) networks(w http.ResponseWriter, c *call) {
	asked, err := filters(c.URL.Query().Get("filters"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "filters: %v", err)
		return
	}
	all := []map[string]any{}
	names := asked["name"]
	if len(names) == 0 || slices.ContainsFunc(names, func(part string) bool { return strings.Contains("none", part) }) {
		all = append(all, map[string]any{"Name": "none", "Id": noneID, "Driver": "null", "Scope": "local",
			"Created": "1970-01-01T00:00:00Z", "Labels": map[string]string{}})
	}
	answer(w, http.StatusOK, all)
}

// image looks at the image that a reference stands for here.
func (p *Proxy) image(w http.ResponseWriter, c *call) {
	id, err := p.pinned(c.name)
	if err != nil {
		refuse(w, http.StatusForbidden, "%v", err)
		return
	}
	c.path = "/images/" + id + "/json"
	p.pass(w, c)
}

// pinned is the image's ID that runs for a reference as a step writes it.
func (p *Proxy) pinned(reference string) (string, error) {
	if !slices.Contains(p.Slot.Images, reference) {
		return "", fmt.Errorf("image %s: want one of %q", text.Quote(reference), p.Slot.Images)
	}
	pins, err := p.Pins()
	if err != nil {
		return "", fmt.Errorf("image %s: reading the pins: %v", text.Quote(reference), err)
	}
	id := pins.Images[reference].ID
	if !strings.HasPrefix(id, "sha256:") {
		return "", fmt.Errorf("image %s: none is pinned on this node: kbnode image update %s", text.Quote(reference), reference)
	}
	return id, nil
}
