package step

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/internal/dockertest"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/audit"
	"github.com/gpu-mode/kbgen/node/gate"
	"github.com/gpu-mode/kbgen/node/proxy"
	"github.com/gpu-mode/kbgen/schema"
)

const image = "ghcr.io/gpu-mode/kbgen-runner:0.1.0-cuda"

// settings are the docker plugin's as kbgen writes them.
func settings() map[string]any {
	return map[string]any{
		"image": image, "skip-checkout": true, "mount-buildkite-agent": false, "propagate-uid-gid": true, "init": false, "tty": false, "network": "none",
		"shm-size": "8g", "environment": []string{"KERNELBOT_RUN_ID", "KERNELBOT_MODE", "SUBMISSION_PAYLOAD"}, "ulimits": []string{"memlock=-1", "core=0"},
		"drop-caps": []string{"ALL"}, "security-opts": []string{"no-new-privileges"}, "tmpfs": []string{"/tmp:exec,size=8g,mode=1777"},
	}
}

func variables(plugin map[string]any) map[string]string {
	raw, err := json.Marshal([]any{map[string]any{"docker#" + schema.PluginVersion: plugin}})
	if err != nil {
		panic(err)
	}
	return map[string]string{
		"BUILDKITE": "true", "BUILDKITE_COMMAND": "exec kbrun evaluate", "BUILDKITE_PLUGINS": string(raw), "BUILDKITE_JOB_ID": "j-1", "BUILDKITE_AGENT_NAME": "n-gpu0",
		"BUILDKITE_AGENT_ID": "a-1", "BUILDKITE_PIPELINE_NAME": "Kernel bot", "BUILDKITE_PIPELINE_SLUG": "kernel-bot", "BUILDKITE_BUILD_NUMBER": "7", "BUILDKITE_LABEL": "Evaluate $(id) on 'X'",
		"BUILDKITE_STEP_KEY": "evaluate-x", "KERNELBOT_RUN_ID": "r1", "SUBMISSION_PAYLOAD": "YQ==\nYg==",
	}
}

// A rig is a slot whose proxy is a recorder. It has no agent.
type rig struct {
	*Runner
	engine  *dockertest.Recorder
	log     bytes.Buffer
	records []audit.Record // that were reported
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root, err := os.MkdirTemp("", "kbs-") // short: a socket lies in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	s := &node.Slot{Name: "gpu0", Platform: "docker", Images: []string{image}}
	host := &node.Slot{Name: "host0", Platform: "host"}
	r := &rig{Runner: &Runner{Config: &node.Config{Slots: []*node.Slot{s, host}}, Slot: s, Root: root}}
	r.Log = &r.log
	r.Report = func(record audit.Record) error { r.records = append(r.records, record); return nil }
	for _, s := range r.Config.Slots {
		if err := os.MkdirAll(filepath.Join(root, s.TempDir()), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r.engine = dockertest.Record(t, filepath.Join(root, s.ProxySocket()))
	r.engine.Proxy = map[string]func() error{
		proxy.Clean: func() error { return proxy.RemoveJobs(filepath.Join(root, s.TempDir())) },
		proxy.Share: func() error { return nil },
	}
	return r
}

// run runs the job with these variables.
func (r *rig) run(ctx context.Context, variables map[string]string) (int, error) {
	j, err := gate.Decide(r.Config, r.Slot.Name, variables)
	if err != nil {
		return 0, err
	}
	return r.Run(ctx, j)
}

// left are the names of what lies in the slot's TempDir.
func (r *rig) left(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.Root, r.Slot.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// environ are the plugin's settings as the agent hands them to it.
func environ(settings map[string]any) []string {
	var out []string
	for key, value := range settings {
		name := "BUILDKITE_PLUGIN_DOCKER_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
		list, ok := value.([]string)
		if !ok {
			out = append(out, fmt.Sprintf("%s=%v", name, value))
		}
		for i, one := range list {
			out = append(out, fmt.Sprintf("%s_%d=%s", name, i, one))
		}
	}
	return out
}

// meaning is a request without default values, and without the three
// settings by which docker's command keeps an empty standard input open.
func meaning(request map[string]any, dir string) map[string]any {
	out := map[string]any{}
	for key, value := range request {
		switch v := value.(type) {
		case map[string]any:
			value = meaning(v, dir)
			if len(value.(map[string]any)) == 0 {
				continue
			}
		case []any:
			if len(v) == 0 {
				continue
			}
		case string:
			if v == "" || v == "default" {
				continue
			}
		case bool:
			if !v {
				continue
			}
		case float64:
			if v == 0 {
				continue
			}
		case nil:
			continue
		}
		switch key {
		case "AttachStdin", "OpenStdin", "StdinOnce", "ConsoleSize", "NetworkingConfig", "MemorySwappiness", "RestartPolicy":
			continue
		case "Env", "Ulimits": // in no order
			list := slices.Clone(value.([]any))
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			value = list
		case "Binds":
			value = strings.ReplaceAll(fmt.Sprint(value), dir, "DIR")
		}
		out[key] = value
	}
	return out
}

// The container of a step is the one that the docker plugin makes, for all settings
// that the gate admits. The plugin is the real one where KBGEN_DOCKER_PLUGIN_DIR
// names a clone of it, else the stand-in that the other tests use.
func TestContainerIsThePlugins(t *testing.T) {
	docker, err := exec.LookPath("docker")
	if err != nil {
		t.Skip("NOT RUN: there is no docker command on PATH, which the plugin runs")
	}
	plugin, real := os.LookupEnv("KBGEN_DOCKER_PLUGIN_DIR")
	if !real {
		plugin = "../../e2e/testdata/docker/plugin"
	}
	if plugin, err = filepath.Abs(plugin); err != nil {
		t.Fatal(err)
	}
	with := func(change func(settings map[string]any)) map[string]any { s := settings(); change(s); return s }
	for name, c := range map[string]struct {
		settings map[string]any
		command  string
	}{
		"as kbgen writes it": {settings(), "exec kbrun evaluate"},
		"docker's init":      {with(func(s map[string]any) { s["init"] = true }), "exec kbrun evaluate"},
		"init by default":    {with(func(s map[string]any) { delete(s, "init") }), "exec kbrun evaluate"},
		"a script":           {settings(), "set -u\necho \"$X\" '$(id)'\nexit 3"},
		"least":              {map[string]any{"image": image, "skip-checkout": true, "network": "none", "tty": false, "propagate-uid-gid": true}, "true"},
		"limits": {with(func(s map[string]any) {
			s["ulimits"] = []string{"nofile=1024:2048", "stack=-1", "core=0:0"}
			s["shm-size"] = "512m"
			s["tmpfs"] = []string{"/tmp", "/run:size=4096", "/var/tmp:noexec,size=1m"}
		}), "true"},
		"sizes":        {with(func(s map[string]any) { s["shm-size"] = "65536" }), "true"},
		"no variables": {with(func(s map[string]any) { delete(s, "environment") }), "true"},
		"ten variables": {with(func(s map[string]any) {
			s["environment"] = []string{"KERNELBOT_A", "KERNELBOT_B", "KERNELBOT_C", "KERNELBOT_D", "KERNELBOT_E", "KERNELBOT_F", "KERNELBOT_G", "KERNELBOT_H", "KERNELBOT_RUN_ID", "KERNELBOT_I", "KERNELBOT_J"}
		}), "true"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			vars := variables(c.settings)
			vars["BUILDKITE_COMMAND"] = c.command
			if status, err := r.run(t.Context(), vars); status != 0 || err != nil {
				t.Fatalf("status %d, %v\n%s", status, err, r.log.String())
			}
			dir := t.TempDir()
			cmd := exec.Command("bash", filepath.Join(plugin, "hooks", "command"))
			cmd.Dir = dir
			cmd.Env = append(environ(c.settings), "PATH="+filepath.Dir(docker)+":"+os.Getenv("PATH"), "HOME="+t.TempDir(), "DOCKER_HOST=unix://"+filepath.Join(r.Root, r.Slot.ProxySocket()))
			for name, value := range vars {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("the plugin: %v\n%s", err, out)
			}
			all := r.engine.Requests()
			if len(all) != 2 {
				t.Fatalf("%d containers, want one of the step and one of the plugin", len(all))
			}
			binds, _ := all[0]["HostConfig"].(map[string]any)["Binds"].([]any)
			if len(binds) != 1 {
				t.Fatalf("the step mounts %v", binds)
			}
			ours, _, _ := strings.Cut(binds[0].(string), ":")
			got, want := meaning(all[0], ours), meaning(all[1], dir)
			if !real { // it gives one label of nine
				delete(got, "Labels")
				delete(want, "Labels")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the plugin's container (-), the step's (+):\n%s", diff)
			}
		})
	}
}

// A container's output and exit status are the job's, and nothing of it is left.
func TestContainer(t *testing.T) {
	r := newRig(t)
	r.engine.Program = func(request map[string]any, out io.Writer, _ <-chan struct{}) int {
		fmt.Fprintln(out, "hello")
		binds := request["HostConfig"].(map[string]any)["Binds"].([]any)
		dir, _, _ := strings.Cut(binds[0].(string), ":")
		deep := filepath.Join(dir, "a", "b")
		if err := os.MkdirAll(deep, 0o700); err != nil {
			fmt.Fprintln(out, err)
		}
		_ = os.WriteFile(filepath.Join(deep, "f"), nil, 0o400)
		_ = os.Symlink("/etc", filepath.Join(deep, "link"))
		_ = os.Chmod(deep, 0)
		_ = os.Chmod(filepath.Dir(deep), 0)
		return 7
	}
	status, err := r.run(t.Context(), variables(settings()))
	if status != 7 || err != nil || !strings.Contains(r.log.String(), "hello\n") {
		t.Errorf("status %d, %v, want 7 and the container's output:\n%s", status, err, r.log.String())
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left of the job: %q", left)
	}
}

// A cancelled job's container is told to stop.
func TestCancelledContainer(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.engine.Program = func(_ map[string]any, out io.Writer, killed <-chan struct{}) int {
		cancel()
		<-killed
		fmt.Fprintln(out, "ended by itself")
		return 143
	}
	status, err := r.run(ctx, variables(settings()))
	if status != 143 || err != nil || !strings.Contains(r.log.String(), "ended by itself") {
		t.Errorf("status %d, %v, want 143 and all output:\n%s", status, err, r.log.String())
	}
}

// Directories of jobs whose process was killed go when the next job begins; what is
// not a job's stays.
func TestLeftoversOfJobs(t *testing.T) {
	r := newRig(t)
	temp := filepath.Join(r.Root, r.Slot.TempDir())
	for _, name := range []string{"buildkite-job-old/x/y", "other"} {
		if err := os.MkdirAll(filepath.Join(temp, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(temp, "buildkite-job-link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(temp, "buildkite-job-old/x"), 0); err != nil {
		t.Fatal(err)
	}
	if status, err := r.run(t.Context(), variables(settings())); status != 0 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	if left := r.left(t); !slices.Equal(left, []string{"buildkite-job-link", "other"}) {
		t.Errorf("left: %q", left)
	}
}

// Only files of the job's own directory are delivered.
func TestArtifacts(t *testing.T) {
	for name, c := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"nothing":     {func(string) error { return nil }, ""},
		"a link":      {func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "result.json")) }, `artifact "result.json": not a regular file`},
		"a directory": {func(dir string) error { return os.Mkdir(filepath.Join(dir, "result.json"), 0o700) }, `artifact "result.json": not a regular file`},
		"a file":      {func(dir string) error { return os.WriteFile(filepath.Join(dir, "result.json"), nil, 0o600) }, "buildkite-agent artifact upload"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Config.Agent.Path = "/nonexistent/buildkite-agent" // it says when it is asked
			r.engine.Program = func(request map[string]any, out io.Writer, _ <-chan struct{}) int {
				dir, _, _ := strings.Cut(request["HostConfig"].(map[string]any)["Binds"].([]any)[0].(string), ":")
				if err := c.make(dir); err != nil {
					fmt.Fprintln(out, err)
				}
				return 0
			}
			vars := variables(settings())
			vars["BUILDKITE_ARTIFACT_PATHS"] = "result.json"
			if _, err := r.run(t.Context(), vars); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Without an engine a job is tried on another machine.
func TestContainersThatDoNotStart(t *testing.T) {
	r := newRig(t)
	if err := os.Remove(filepath.Join(r.Root, r.Slot.ProxySocket())); err != nil {
		t.Fatal(err)
	}
	var unfit *gate.UnfitError
	if _, err := r.run(t.Context(), variables(settings())); !errors.As(err, &unfit) {
		t.Errorf("without an engine: %v, want an UnfitError", err)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left of the job: %q", left)
	}
}

// On a slot without containers the slot's own command runs, with the job's variables.
func TestProcess(t *testing.T) {
	r := newRig(t)
	r.Slot = r.Config.Slots[1]
	r.Slot.Commands = []string{"echo \"mode $KERNELBOT_MODE in $PWD\"; exit 5", "sleep 600"}
	job := maps.Clone(variables(nil))
	delete(job, "BUILDKITE_PLUGINS")
	job["BUILDKITE_COMMAND"], job["KERNELBOT_MODE"] = r.Slot.Commands[0], "$(id)"
	status, err := r.run(t.Context(), job)
	if want := "mode $(id) in " + filepath.Join(r.Root, r.Slot.TempDir(), "buildkite-job-"); status != 5 || err != nil || !strings.Contains(r.log.String(), want) {
		t.Errorf("status %d, %v, want 5 and %q:\n%s", status, err, want, r.log.String())
	}
	began := audit.Record{Slot: "host0", Job: "j-1", Pipeline: "kernel-bot", Build: "7", Step: "evaluate-x"}
	ended := began
	ended.Status = 5
	if len(r.records) != 2 || r.records[0] != began || r.records[1].Ended.IsZero() {
		t.Fatalf("reported %+v, want that the job began, and that it ended", r.records)
	}
	if r.records[1].Ended = (time.Time{}); r.records[1] != ended {
		t.Errorf("reported %+v, want %+v", r.records[1], ended)
	}
	job["BUILDKITE_COMMAND"] = r.Slot.Commands[1]
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if status, err := r.run(ctx, job); status != 143 || err != nil {
		t.Errorf("cancelled: status %d, %v, want 143", status, err)
	}
}

// Whatever a job's variables are, the request for its container holds the job's
// command as one argument, variables of the list only, and nothing else of the job's
// but labels.
func FuzzContainer(f *testing.F) {
	f.Add("BUILDKITE_MESSAGE", "BUILDKITE_PLUGIN_DOCKER_ENVIRONMENT_0[$(id)]", "8g", "core=0", "/tmp:exec,size=8g", "KERNELBOT_RUN_ID")
	f.Add("KERNELBOT_PAYLOAD", "a\nb", "0", "nofile=1:2", "/run", "KERNELBOT_X\n--privileged")
	f.Fuzz(func(t *testing.T, name, value, shm, ulimit, tmpfs, variable string) {
		plugin := settings()
		plugin["shm-size"], plugin["ulimits"], plugin["tmpfs"], plugin["environment"] = shm, []string{ulimit}, []string{tmpfs}, []string{variable}
		vars := variables(plugin)
		vars[name] = value
		config := &node.Config{Slots: []*node.Slot{{Name: "gpu0", Platform: "docker", Images: []string{image}}}}
		j, err := gate.Decide(config, "gpu0", vars)
		if err != nil {
			return
		}
		c, err := newCreate(j, "/d")
		if err != nil {
			return
		}
		if want := []string{"/bin/sh", "-e", "-c", vars["BUILDKITE_COMMAND"]}; !slices.Equal(c.Cmd, want) || c.Image != image || !slices.Equal(c.HostConfig.Binds, []string{"/d:/workdir"}) {
			t.Errorf("the container runs %q of %q with %q", c.Cmd, c.Image, c.HostConfig.Binds)
		}
		for _, pair := range c.Env {
			if name, _, _ := strings.Cut(pair, "="); !proxy.Passes(name) || strings.ContainsAny(name, "\n[$(") {
				t.Errorf("the container gets the variable %q", pair)
			}
		}
		for at := range c.HostConfig.Tmpfs {
			if !slices.Contains([]string{"/tmp", "/run", "/var/tmp"}, at) {
				t.Errorf("a file system at %q", at)
			}
		}
	})
}
