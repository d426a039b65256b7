package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gpu-mode/kbgen/internal/dockertest"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/audit"
)

// probe is what the tests' images hold.
const probe = "testdata/probe/main.go"

// A slotRig is a slot's proxy in front of a real engine.
type slotRig struct {
	t      testing.TB
	engine *dockertest.Engine
	proxy  *Proxy
	host   string // DOCKER_HOST of the slot's agent
	temp   string
	ended  atomic.Int32
}

const agentUser, jobUser = 4320, 4321

func newSlotRig(t testing.TB, e *dockertest.Engine, name, image string) *slotRig {
	t.Helper()
	r := &slotRig{t: t, engine: e, temp: filepath.Join(e.Dir(), name)}
	if err := os.Mkdir(r.temp, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &node.Slot{Name: name, CPUs: "0", MemoryBytes: 256 << 20, Pids: 50, Images: []string{image}}
	p, err := New(Options{Slot: s, UID: agentUser, GID: agentUser, JobUID: jobUser, Engine: e.Socket(), TempDir: r.temp, Log: t.Logf, Stuck: func(context.Context, error) {}, Audit: func(audit.Record) error { return nil },
		Pins: func() (*node.Pins, error) {
			return &node.Pins{Images: map[string]node.Pin{image: {ID: e.Run("image", "inspect", "--format", "{{.Id}}", image)}}}, nil
		},
		Ended: func(context.Context) error { r.ended.Add(1); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	r.proxy = p
	socket := filepath.Join(e.Dir(), name+".sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: p}
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(l) }() // ends with Close
	t.Cleanup(func() {
		if err := p.clear(context.Background()); err != nil {
			t.Error(err)
		}
		server.Close()
		<-done
		e.RemoveGroup(s.Slice())
	})
	r.host = "unix://" + socket
	return r
}

// docker runs the stock command as the slot's agent would.
func (r *slotRig) docker(args ...string) (status int, said string) {
	r.t.Helper()
	cmd := r.engine.CommandAt(r.host, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		r.t.Fatalf("docker %s: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// job makes a job's directory.
func (r *slotRig) job(name string) string {
	r.t.Helper()
	dir := filepath.Join(r.temp, "buildkite-job-"+name)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770), os.Chown(dir, agentUser, agentUser)); err != nil {
		r.t.Fatal(err)
	}
	return dir
}

// The stock docker command on a real engine, behind the proxies of two slots.
func TestDockerBehindTheProxy(t *testing.T) {
	e := dockertest.Start(t, os.Getenv(dockertest.Variable))
	id := e.Import("probe:1", dockertest.Program(t, "probe", probe))
	r, other := newSlotRig(t, e, "gpu0", "probe:1"), newSlotRig(t, e, "gpu1", "probe:1")
	dir := r.job("1")
	t.Run("a step of kbgen's", func(t *testing.T) {
		status, said := r.docker("run", "-i", "--rm", "--init", "--tmpfs", "/tmp:exec,size=8g,mode=1777", "--volume", dir+":/workdir", "--cap-drop", "ALL",
			"--security-opt", "no-new-privileges", "--ulimit", "memlock=-1", "--ulimit", "core=0", "--workdir", "/workdir", "-u", "0:0", "--network", "none", "--shm-size", "8g",
			"--env", "KERNELBOT_RUN_ID=r1", "--env", "HOME=/evil", "--label", "com.buildkite.job-id=1", "probe:1",
			"/probe", "id", "status=CapEff", "status=NoNewPrivs", "status=Cpus_allowed_list", "env", "write=/workdir/result.json", "write=/x", "write=/tmp/x", "exit=7")
		for _, want := range []string{"4321 4320\n", "CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Cpus_allowed_list:\t0\n", "KERNELBOT_RUN_ID=r1\n", "NVIDIA_VISIBLE_DEVICES=void\n", "open /x: read-only file system\n"} {
			if !strings.Contains(said, want) {
				t.Errorf("the container did not say %q:\n%s", want, said)
			}
		}
		if status != 7 || strings.Contains(said, "evil") {
			t.Errorf("exit status %d, want 7:\n%s", status, said)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "result.json")); string(text) != "written" {
			t.Errorf("result.json: %q, %v", text, err)
		}
	})
	if err := os.Symlink("/etc", filepath.Join(r.temp, "buildkite-job-link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args string
		want string
	}{
		"privileged":     {"run --privileged probe:1 /probe id", "kbnode: --privileged: not allowed here"},
		"all GPUs":       {"run --gpus all probe:1 /probe id", "kbnode: --gpus: not allowed here: a container gets the slot's devices"},
		"device":         {"run --device /dev/null probe:1 /probe id", "kbnode: --device: not allowed here"},
		"host's root":    {"run -v /:/host probe:1 /probe id", `kbnode: volume "/:/host": only the job's directory`},
		"mount":          {"run --mount type=bind,source=/,target=/host probe:1 /probe id", "only the job's directory"},
		"volume":         {"run -v data:/data probe:1 /probe id", "only the job's directory"},
		"link":           {"run -v " + r.temp + "/buildkite-job-link:/workdir probe:1 /probe id", "got a link or no directory"},
		"other's job":    {"run -v " + other.temp + "/buildkite-job-1:/workdir probe:1 /probe id", "only the job's directory"},
		"processes":      {"run --pid host probe:1 /probe id", `kbnode: --pid "host": not allowed here`},
		"network":        {"run --network host probe:1 /probe id", `kbnode: --network "host": not allowed here: want none`},
		"capability":     {"run --cap-add SYS_ADMIN probe:1 /probe id", "kbnode: --cap-add: not allowed here"},
		"seccomp":        {"run --security-opt seccomp=unconfined probe:1 /probe id", `kbnode: --security-opt "seccomp=unconfined": not allowed here`},
		"slice":          {"run --cgroup-parent / probe:1 /probe id", "kbnode: --cgroup-parent: not allowed here"},
		"image":          {"run busybox id", `kbnode: image "busybox": want one of ["probe:1"]`},
		"image by ID":    {"run " + id + " /probe id", `kbnode: image "sha256:`},
		"build":          {"build -", "kbnode: not allowed here: POST /build"},
		"pull":           {"pull probe:1", "kbnode: not allowed here: POST /images/create"},
		"images":         {"images", "kbnode: not allowed here: GET /images/json"},
		"volumes":        {"volume ls", "kbnode: not allowed here: GET /volumes"},
		"network create": {"network create x", "kbnode: not allowed here: POST /networks/create"},
	} {
		t.Run(name, func(t *testing.T) {
			if status, said := r.docker(strings.Fields(c.args)...); status == 0 || !strings.Contains(said, c.want) {
				t.Errorf("docker %s: exit status %d, want %q:\n%s", c.args, status, c.want, said)
			}
		})
	}
	t.Run("networks", func(t *testing.T) {
		if status, said := r.docker("network", "ls", "--quiet", "--filter", "name=none"); status != 0 || strings.TrimSpace(said) == "" {
			t.Errorf("exit status %d: %q, want an ID: the plugin makes a network otherwise", status, said)
		}
	})
	t.Run("info", func(t *testing.T) {
		status, said := r.docker("info", "--format", "{{.ServerVersion}} {{.OSType}} {{.Containers}} {{.Name}}")
		if want := e.Run("version", "--format", "{{.Server.Version}}") + " linux 0 \n"; status != 0 || said != want {
			t.Errorf("exit status %d: %q, want %q", status, said, want)
		}
	})
	t.Run("two slots", func(t *testing.T) { twoSlots(t, r, other) })
	for slot, want := range map[*slotRig]int32{r: 1, other: 2} {
		if err := slot.proxy.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := slot.ended.Load(); n != want {
			t.Errorf("the end of %d containers was told, want %d", n, want)
		}
	}
}

// twoSlots: one sees nothing of the other's container, and its own is gone before
// the next.
func twoSlots(t *testing.T, r, other *slotRig) {
	status, said := other.docker("run", "--detach", "--name", "mine", "probe:1", "/probe", "hang")
	theirs := strings.TrimSpace(said)
	if status != 0 || len(theirs) != 64 {
		t.Fatalf("exit status %d: %s", status, said)
	}
	for _, args := range [][]string{{"inspect", "--type", "container", theirs}, {"stop", theirs}, {"kill", theirs[:12]}, {"rm", theirs}, {"logs", theirs}, {"attach", theirs}, {"wait", theirs}, {"start", theirs}} {
		if status, said := r.docker(args...); status == 0 || !strings.Contains(strings.ToLower(said), "no such") {
			t.Errorf("docker %s of another slot's: exit status %d:\n%s", args[0], status, said)
		}
	}
	for _, args := range [][]string{{"exec", theirs, "/probe"}, {"cp", theirs + ":/probe", "-"}} {
		if status, said := r.docker(args...); status == 0 {
			t.Errorf("docker %s of another slot's: exit status 0:\n%s", args[0], said)
		}
	}
	if _, said := r.docker("ps", "--all", "--quiet"); said != "" {
		t.Errorf("docker ps shows %q", said)
	}
	if _, said := other.docker("ps", "--quiet", "--no-trunc"); strings.TrimSpace(said) != theirs {
		t.Errorf("docker ps of its own slot shows %q, want %s", said, theirs)
	}
	if status, said := other.docker("exec", theirs, "/probe"); status == 0 || !strings.Contains(said, "kbnode: not allowed here: POST /containers/") {
		t.Errorf("docker exec: exit status %d: %s", status, said)
	}
	limits := r.engine.Run("inspect", "--format", "{{.HostConfig.CgroupParent}} {{.HostConfig.Memory}} {{.HostConfig.PidsLimit}} {{.HostConfig.NetworkMode}} {{.HostConfig.ReadonlyRootfs}}", theirs)
	if want := fmt.Sprintf("kbnode-gpu1.slice %d 50 none true", 256<<20); limits != want {
		t.Errorf("the engine says %q, want %q", limits, want)
	}
	if status, said := other.docker("run", "--rm", "probe:1", "/probe", "id"); status != 0 {
		t.Errorf("the next: exit status %d: %s", status, said)
	}
	if all := r.engine.Run("ps", "--all", "--quiet", "--no-trunc"); strings.Contains(all, theirs) {
		t.Errorf("what the last job left is there when the next has run: %s", all)
	}
}
