package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/docker"
	"github.com/gpu-mode/kbgen/schema/text"
)

// description is what the engine says of an image.
type description struct {
	ID          string `json:"Id"`
	RepoDigests []string
	Size        int64
	Config      *struct{ Volumes map[string]any }
}

func (m *Manager) inspect(ctx context.Context, ref string) (description, error) {
	var d description
	err := m.Engine.Do(ctx, http.MethodGet, "/images/"+ref+"/json", nil, nil, &d)
	if err == nil && !strings.HasPrefix(d.ID, "sha256:") {
		err = fmt.Errorf("image %s: got ID %s, want sha256:…", ref, text.Quote(d.ID))
	}
	return d, err
}

// name is a reference without tag and digest.
func name(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	if colon := strings.LastIndex(ref, ":"); colon > strings.LastIndex(ref, "/") {
		ref = ref[:colon]
	}
	return ref
}

// digest is the registry's name of the image, empty for one that came otherwise.
func (d *description) digest(ref string) string {
	for _, one := range d.RepoDigests {
		if strings.HasPrefix(one, name(ref)+"@") {
			return one
		}
	}
	if len(d.RepoDigests) > 0 { // "python" is "docker.io/library/python" elsewhere
		return d.RepoDigests[0]
	}
	return ""
}

// find returns the image to run for a reference. If local is set, it takes the engine's
// image of that name. Otherwise it takes the image with the reference's digest. Without
// a digest it pulls the reference's tag, if tags are allowed.
func (m *Manager) find(ctx context.Context, ref string, local bool) (description, error) {
	digest := m.Digests[ref]
	if _, pinned, ok := strings.Cut(ref, "@"); ok {
		digest = pinned
	}
	switch {
	case local:
		d, err := m.inspect(ctx, ref)
		if docker.Is(err, http.StatusNotFound) {
			err = fmt.Errorf("image %s: the engine has none: docker load or docker pull it, or leave --local out", ref)
		}
		return d, err
	case digest != "":
		return m.findDigest(ctx, name(ref)+"@"+digest)
	case !m.AllowTags:
		return description{}, &node.HintError{
			Err:  fmt.Errorf("image %s: got a tag without a digest, want a digest, because a registry can give the tag to another image", ref),
			Hint: fmt.Sprintf(`put images: [{reference: "%s", digest: "sha256:..."}] or allow_tags: true into the queue file, then kbnode apply FILE`, ref),
		}
	}
	if err := m.pull(ctx, ref); err != nil {
		return description{}, err
	}
	return m.inspect(ctx, ref)
}

// findDigest returns the image "name@sha256:...", which it pulls if the engine has
// none.
func (m *Manager) findDigest(ctx context.Context, ref string) (description, error) {
	d, err := m.inspect(ctx, ref)
	if docker.Is(err, http.StatusNotFound) {
		if err = m.pull(ctx, ref); err == nil {
			d, err = m.inspect(ctx, ref)
		}
	}
	_, digest, _ := strings.Cut(ref, "@")
	if err == nil && !slices.ContainsFunc(d.RepoDigests, func(one string) bool { return strings.HasSuffix(one, "@"+digest) }) {
		err = fmt.Errorf("image %s: got an image with the digests %q, want this one", ref, d.RepoDigests)
	}
	d.RepoDigests = []string{ref} // the one to pin
	return d, err
}

// pull has the engine fetch a reference, if there is room.
func (m *Manager) pull(ctx context.Context, ref string) error {
	if err := m.room(ctx); err != nil {
		return fmt.Errorf("image %s: %w", ref, err)
	}
	query := url.Values{"fromImage": {ref}}
	if name(ref) == ref {
		query.Set("tag", "latest") // all tags otherwise
	}
	answer, err := m.Engine.Open(ctx, http.MethodPost, "/images/create", query, nil)
	if err != nil {
		return fmt.Errorf("pulling %s: %w", ref, err)
	}
	defer answer.Close()
	for d := json.NewDecoder(answer); ; {
		var line struct {
			Error string `json:"error"`
		}
		switch err := d.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("pulling %s: %w", ref, err)
		case line.Error != "":
			return fmt.Errorf("pulling %s: %s", ref, text.Line(line.Error, 300))
		}
	}
}

// room says whether the engine's disk has room for an image.
func (m *Manager) room(ctx context.Context) error {
	var info struct{ DockerRootDir string }
	if err := m.Engine.Do(ctx, http.MethodGet, "/info", nil, nil, &info); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(info.DockerRootDir, &st); err != nil {
		return fmt.Errorf("%s: %w", info.DockerRootDir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < m.LeastFree {
		return fmt.Errorf("%s: got %d GiB of free disk, want %d: kbnode image gc, docker image prune", info.DockerRootDir, free>>30, m.LeastFree>>30)
	}
	return nil
}

// What a trial of an image may use.
const (
	smokeMemory = 2 << 30
	smokePids   = 256
	smokeTime   = 2 * time.Minute
	smokeLabel  = "kbnode.smoke"
)

// try runs the image's kbrun once, cut off from everything.
func (m *Manager) try(ctx context.Context, d description) error {
	if d.Config != nil && len(d.Config.Volumes) > 0 {
		return errors.New("it declares volumes, which a container could fill the disk by")
	}
	ctx, cancel := context.WithTimeout(ctx, smokeTime)
	defer cancel()
	if _, err := m.Engine.Reap(ctx, smokeLabel+"=1"); err != nil { // of one that was killed
		return err
	}
	config := map[string]any{
		"Image": d.ID, "User": "65534:65534", "Entrypoint": m.Smoke[:1], "Cmd": m.Smoke[1:],
		"Labels": map[string]string{smokeLabel: "1"}, "Env": []string{"NVIDIA_VISIBLE_DEVICES=void", "AMD_VISIBLE_DEVICES=void"},
		"Healthcheck": map[string]any{"Test": []string{"NONE"}},
		"HostConfig": map[string]any{
			"NetworkMode": "none", "ReadonlyRootfs": true, "CapDrop": []string{"ALL"}, "SecurityOpt": []string{"no-new-privileges"},
			"Memory": smokeMemory, "MemorySwap": smokeMemory, "PidsLimit": smokePids, "NanoCpus": 1_000_000_000,
			// Beside the slots' slices and of the least weight, so that jobs keep their cores.
			"CgroupParent": "kbnode.slice", "CpuShares": 2,
			"Tmpfs": map[string]string{"/tmp": "rw,nosuid,nodev,exec,size=256m,mode=1777"}, "IpcMode": "private",
			"LogConfig": map[string]any{"Type": "json-file"},
		},
	}
	var made struct {
		ID string `json:"Id"`
	}
	if err := m.Engine.Do(ctx, http.MethodPost, "/containers/create", nil, config, &made); err != nil {
		return fmt.Errorf("its trial: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := m.Engine.Remove(ctx, made.ID); err != nil {
			m.Log("%v", err)
		}
	}()
	if err := m.Engine.Do(ctx, http.MethodPost, "/containers/"+made.ID+"/start", nil, nil, nil); err != nil {
		return fmt.Errorf("its trial: %w", err)
	}
	status, err := m.Engine.Wait(ctx, made.ID, "not-running")
	if err != nil {
		return fmt.Errorf("its trial: %w", err)
	}
	if status != 0 {
		return fmt.Errorf("%q in it ends with %d: %s", strings.Join(m.Smoke, " "), status, m.logs(ctx, made.ID))
	}
	return nil
}

// logs is the end of what a container has printed.
func (m *Manager) logs(ctx context.Context, id string) string {
	answer, err := m.Engine.Open(ctx, http.MethodGet, "/containers/"+id+"/logs", url.Values{"stdout": {"1"}, "stderr": {"1"}, "tail": {"5"}}, nil)
	if err != nil {
		return err.Error()
	}
	defer answer.Close()
	// Each piece has a header of eight bytes, which ends in its length.
	var all []byte
	for header := make([]byte, 8); len(all) < 64<<10; {
		if _, err := io.ReadFull(answer, header); err != nil {
			break
		}
		n := int64(header[4])<<24 | int64(header[5])<<16 | int64(header[6])<<8 | int64(header[7])
		piece, err := io.ReadAll(io.LimitReader(answer, min(n, 64<<10)))
		all = append(all, piece...)
		if err != nil || int64(len(piece)) < n {
			break
		}
	}
	return text.Line(string(all), 300)
}

// A Status is how a reference stands.
type Status struct {
	Reference string    `json:"reference" jsonschema:"as steps write it"`
	ID        string    `json:"id" jsonschema:"of the image that runs for it, empty when none is pinned"`
	Digest    string    `json:"digest" jsonschema:"the registry's name of it, empty for one that was loaded by hand"`
	Previous  string    `json:"previous" jsonschema:"the ID that rollback goes back to, or empty"`
	Held      string    `json:"held" jsonschema:"an ID that the timer does not take, for rollback went back from it"`
	At        time.Time `json:"at" jsonschema:"since when"`
	Present   bool      `json:"present" jsonschema:"whether the engine has the image"`
	Bytes     int64     `json:"bytes" jsonschema:"its size, 0 when it is not there"`
	Slots     []string  `json:"slots" jsonschema:"whose steps may name it"`
}

// Status says how a reference stands, as the pins and the engine have it.
func (m *Manager) Status(ctx context.Context, s *Status) error {
	if s.ID == "" {
		return nil
	}
	d, err := m.inspect(ctx, s.ID)
	if docker.Is(err, http.StatusNotFound) {
		return nil
	}
	s.Present, s.Bytes = err == nil, d.Size
	return err
}

// List returns a status for each reference of the slots', as the pins have it.
func List(config *node.Config, pins *node.Pins) []Status {
	var all []Status
	for _, s := range config.Slots {
		for _, ref := range s.Images {
			at := slices.IndexFunc(all, func(one Status) bool { return one.Reference == ref })
			if at < 0 {
				p := pins.Images[ref]
				all = append(all, Status{Reference: ref, ID: p.ID, Digest: p.Digest, Previous: p.Previous, Held: p.Held, At: p.At})
				at = len(all) - 1
			}
			all[at].Slots = append(all[at].Slots, s.Name)
		}
	}
	return all
}

// References returns the references of statuses.
func References(all []Status) []string {
	var out []string
	for _, one := range all {
		out = append(out, one.Reference)
	}
	return out
}
