package step

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node/docker"
	"github.com/gpu-mode/kbgen/node/gate"
	"github.com/gpu-mode/kbgen/node/proxy"
)

// A create is the part of docker's request for a container that a step fills in.
type create struct {
	Image      string
	Cmd        []string
	Env        []string
	Labels     map[string]string
	User       string
	WorkingDir string

	AttachStdout, AttachStderr bool

	HostConfig hostConfig
}

type hostConfig struct {
	Binds       []string
	NetworkMode string
	AutoRemove  bool
	Init        *bool             `json:",omitempty"`
	ShmSize     int64             `json:",omitempty"`
	Ulimits     []ulimit          `json:",omitempty"`
	Tmpfs       map[string]string `json:",omitempty"`
	CapDrop     []string          `json:",omitempty"`
	SecurityOpt []string          `json:",omitempty"`
}

type ulimit struct {
	Name       string
	Soft, Hard int64
}

// workDir is where the container finds the job's directory.
const workDir = "/workdir"

// newCreate returns the request for a job's container that the docker plugin v5.13.0
// would make. Standard input is empty, as the plugin's is.
func newCreate(j *gate.Job, dir string) (*create, error) {
	c := j.Container
	shm, err := proxy.Bytes(c.ShmSize)
	if c.ShmSize != "" && err != nil {
		return nil, fmt.Errorf("shm-size: got %q, want a size such as 8g", c.ShmSize)
	}
	out := &create{
		Image: c.Image, Cmd: []string{"/bin/sh", "-e", "-c", j.Command}, Labels: labels(j.Variables),
		User: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()), WorkingDir: workDir, AttachStdout: true, AttachStderr: true,
		HostConfig: hostConfig{
			Binds: []string{dir + ":" + workDir}, NetworkMode: "none", AutoRemove: true,
			ShmSize: shm, Tmpfs: map[string]string{}, CapDrop: c.DropCaps, SecurityOpt: c.Security,
		},
	}
	if c.Init == nil || *c.Init { // the plugin's default
		out.HostConfig.Init = new(true)
	}
	for _, name := range c.Environment {
		// A name without a value takes the variable out of the image's environment.
		if value, ok := j.Variables[name]; ok {
			name += "=" + value
		}
		out.Env = append(out.Env, name)
	}
	for _, said := range c.Ulimits {
		u, err := readUlimit(said)
		if err != nil {
			return nil, err
		}
		out.HostConfig.Ulimits = append(out.HostConfig.Ulimits, u)
	}
	for _, said := range c.Tmpfs {
		at, options, _ := strings.Cut(said, ":")
		out.HostConfig.Tmpfs[at] = options
	}
	return out, nil
}

// readUlimit reads "core=0" and "nofile=1024:2048".
func readUlimit(said string) (ulimit, error) {
	name, values, _ := strings.Cut(said, "=")
	soft, hard, both := strings.Cut(values, ":")
	if !both {
		hard = soft
	}
	u := ulimit{Name: name}
	var err1, err2 error
	u.Soft, err1 = strconv.ParseInt(soft, 10, 64)
	u.Hard, err2 = strconv.ParseInt(hard, 10, 64)
	if err1 != nil || err2 != nil {
		return u, fmt.Errorf("ulimits: got %q, want a limit such as core=0", said)
	}
	return u, nil
}

// labelled are the labels that the plugin gives a container, and the variables that
// they repeat.
var labelled = map[string]string{
	"com.buildkite.job-id": "BUILDKITE_JOB_ID", "com.buildkite.pipeline_name": "BUILDKITE_PIPELINE_NAME", "com.buildkite.pipeline_slug": "BUILDKITE_PIPELINE_SLUG",
	"com.buildkite.build_number": "BUILDKITE_BUILD_NUMBER", "com.buildkite.job_id": "BUILDKITE_JOB_ID", "com.buildkite.job_label": "BUILDKITE_LABEL",
	"com.buildkite.step_key": "BUILDKITE_STEP_KEY", "com.buildkite.agent_name": "BUILDKITE_AGENT_NAME", "com.buildkite.agent_id": "BUILDKITE_AGENT_ID",
}

func labels(variables map[string]string) map[string]string {
	out := map[string]string{}
	for label, name := range labelled {
		out[label] = variables[name]
	}
	return out
}

// container runs the job's container. The proxy removes it when the connection that
// it is attached to ends, so that it does not outlive this process.
func (r *Runner) container(ctx context.Context, j *gate.Job, dir string) (status int, err error) {
	asked, err := newCreate(j, dir)
	if err != nil {
		return 0, err
	}
	engine := r.engine()
	fmt.Fprintf(r.Log, "--- :docker: Running command in %s\n", j.Container.Image)
	// A cancelled job must not interrupt the requests that follow the creation.
	background := context.WithoutCancel(ctx)
	var made struct {
		ID string `json:"Id"`
	}
	if err := engine.Do(ctx, http.MethodPost, "/containers/create", nil, asked, &made); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, engine.Remove(background, made.ID))
		}
	}()
	at := "/containers/" + made.ID
	output, err := engine.Open(background, http.MethodPost, at+"/attach", url.Values{"stream": {"1"}, "stdout": {"1"}, "stderr": {"1"}}, nil)
	if err != nil {
		return 0, err
	}
	defer output.Close()
	// The engine's headers come at once, the exit status when the container is gone.
	removed, err := engine.Open(background, http.MethodPost, at+"/wait", url.Values{"condition": {"removed"}}, nil)
	if err != nil {
		return 0, err
	}
	defer removed.Close()
	if err := engine.Do(background, http.MethodPost, at+"/start", nil, nil, nil); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() {
		seconds := strconv.Itoa(int(stopTime / time.Second))
		if err := engine.Do(background, http.MethodPost, at+"/stop", url.Values{"t": {seconds}}, nil, nil); err != nil && !docker.Is(err, http.StatusNotFound) {
			fmt.Fprintf(r.Log, "kbnode: stopping the container: %v\n", err)
		}
	})
	defer stop()
	if err := copyOutput(r.Log, output); err != nil {
		fmt.Fprintf(r.Log, "kbnode: the container's output: %v\n", err)
	}
	var ended struct{ StatusCode int }
	if err := json.NewDecoder(removed).Decode(&ended); err != nil {
		return 0, fmt.Errorf("waiting for the container: %w", err)
	}
	return ended.StatusCode, nil
}

// maxFrame bounds one frame of a container's output, bytes.
const maxFrame = 16 << 20

// copyOutput copies a container's output. Each frame has a header of eight bytes:
// the stream, three zeros and the length, big-endian.
//
// Source: docs.docker.com/reference/api/engine, operation ContainerAttach.
func copyOutput(w io.Writer, from io.Reader) error {
	var header [8]byte
	for {
		if _, err := io.ReadFull(from, header[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(header[4:])
		if n > maxFrame {
			return errors.New("a frame that is too long")
		}
		if _, err := io.CopyN(w, from, int64(n)); err != nil {
			return err
		}
	}
}
