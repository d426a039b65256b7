package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/audit"
	"github.com/gpu-mode/kbgen/node/limits"
	"github.com/gpu-mode/kbgen/schema"
)

// rendered is what docker's client sends for a step as kbgen writes it.
func rendered(temp string) string {
	return strings.ReplaceAll(`{"Hostname":"","User":"0:0","AttachStdin":true,"AttachStdout":true,"AttachStderr":true,"OpenStdin":true,"StdinOnce":true,
"Env":["KERNELBOT_RUN_ID=r1","KERNELBOT_MODE","SUBMISSION_PAYLOAD=eJw=","BUILDKITE_AGENT_ACCESS_TOKEN=x","LD_PRELOAD=/x","NVIDIA_VISIBLE_DEVICES=all"],
"Cmd":["/bin/sh","-e","-c","exec kbrun evaluate"],"Image":"runner:1","WorkingDir":"/workdir","Volumes":{},"MacAddress":"x","NewSetting":{"a":1},
"Labels":{"com.buildkite.job-id":"j1","other":"x","kbnode.slot":"gpu1"},
"HostConfig":{"Binds":["TEMP/buildkite-job-1:/workdir"],"NetworkMode":"none","AutoRemove":true,"CapDrop":["ALL"],"SecurityOpt":["no-new-privileges"],
"RestartPolicy":{"Name":"no"},"ShmSize":8589934592,"Tmpfs":{"/tmp":"exec,size=8g,mode=1777"},"Init":true,"MemorySwappiness":-1,"Memory":1,"NanoCpus":1,
"Ulimits":[{"Name":"memlock","Soft":-1,"Hard":-1},{"Name":"core","Soft":0,"Hard":0}],"NewHostSetting":true,"OomKillDisable":true,"LogConfig":{"Type":"syslog"}},
"NetworkingConfig":{"EndpointsConfig":{"none":{}}}}`, "TEMP", temp)
}

// user is who the tests run as, whose directories may be mounted then.
func user(o *Options) { o.UID, o.GID = max(os.Getuid(), 1), max(os.Getgid(), 1) }

// jobDirectory makes one that the slot's user has.
func (r *rig) jobDirectory(name string) {
	r.t.Helper()
	dir := filepath.Join(r.temp, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, r.UID, r.GID); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestContainersAreBuiltAnew(t *testing.T) {
	r := newRig(t, user, func(o *Options) { o.Slot.Groups = []int{44, 109} })
	r.jobDirectory("buildkite-job-1")
	r.created(rendered(r.temp))
	var got map[string]any
	if err := json.Unmarshal(r.body("/containers/create"), &got); err != nil {
		t.Fatal(err)
	}
	if got["User"] == "0:0" || got["User"] == "" {
		t.Errorf("User is %q", got["User"])
	}
	delete(got, "User")
	var want map[string]any
	if err := json.Unmarshal([]byte(strings.ReplaceAll(`{"Image":"`+testID+`","AttachStdin":true,"AttachStdout":true,"AttachStderr":true,"Tty":false,"OpenStdin":true,"StdinOnce":true,
"Env":["NVIDIA_VISIBLE_DEVICES=void","AMD_VISIBLE_DEVICES=void","KERNELBOT_RUN_ID=r1","KERNELBOT_MODE","SUBMISSION_PAYLOAD=eJw="],
"Cmd":["/bin/sh","-e","-c","exec kbrun evaluate"],"WorkingDir":"/workdir","Labels":{"com.buildkite.job-id":"j1","kbnode.slot":"gpu0"},"Healthcheck":{"Test":["NONE"]},
"HostConfig":{"CgroupParent":"kbnode-gpu0.slice","CpusetCpus":"0-3","CpusetMems":"0","Memory":4294967296,"MemorySwap":4294967296,"PidsLimit":100,
"DeviceRequests":[{"Driver":"cdi","DeviceIDs":["nvidia.com/gpu=GPU-1"]}],"GroupAdd":["44","109"],"Privileged":false,"ReadonlyRootfs":true,"CapDrop":["ALL"],
"SecurityOpt":["no-new-privileges"],"NetworkMode":"none","IpcMode":"private","CgroupnsMode":"private","LogConfig":{"Type":"none"},"RestartPolicy":{"Name":"no"},
"Mounts":[{"Type":"bind","Source":"TEMP/buildkite-job-1","Target":"/workdir"}],"Tmpfs":{"/tmp":"rw,nosuid,nodev,exec,size=4294967296,mode=1777"},"ShmSize":4294967296,
"Ulimits":[{"Name":"memlock","Soft":-1,"Hard":-1},{"Name":"core","Soft":0,"Hard":0},{"Name":"nofile","Soft":16384,"Hard":16384}],"AutoRemove":true,"Init":true}}`, "TEMP", r.temp)), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the engine gets (-want +got):\n%s", diff)
	}
}

// Devices without a CDI name are given as nodes, each once.
func TestDeviceNodes(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Slot.Devices = []node.Device{{Vendor: "amd", Nodes: []string{"/dev/kfd", "/dev/dri/renderD128"}}, {Vendor: "amd", Nodes: []string{"/dev/kfd", "/dev/dri/renderD129"}}}
	})
	r.created(`{"Image":"runner:1"}`)
	var got given
	if err := json.Unmarshal(r.body("/containers/create"), &got); err != nil {
		t.Fatal(err)
	}
	var want []limits.Device
	for _, path := range []string{"/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129"} {
		want = append(want, limits.Device{PathOnHost: path, PathInContainer: path, CgroupPermissions: "rw"})
	}
	if diff := cmp.Diff(want, got.HostConfig.Devices); diff != "" || got.HostConfig.DeviceRequests != nil {
		t.Errorf("devices (-want +got):\n%s; requests %v", diff, got.HostConfig.DeviceRequests)
	}
}

func TestCreatesThatAreRefused(t *testing.T) {
	r := newRig(t, user)
	r.jobDirectory("buildkite-job-1")
	r.jobDirectory("other")
	if err := os.Symlink("/etc", filepath.Join(r.temp, "buildkite-job-link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.temp, "buildkite-job-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	job := r.temp + "/buildkite-job-1"
	for _, c := range []struct{ config, host, want string }{
		{`"Image":"busybox"`, ``, `image "busybox": want one of ["runner:1" "unpinned:1"]`},
		{`"Image":"unpinned:1"`, ``, `image "unpinned:1": none is pinned on this node: kbnode image update unpinned:1`},
		{`"Volumes":{"/data":{}}`, ``, `--volume without a directory: not allowed here: want only the job's directory`},
		{`"StopTimeout":100000`, ``, `--stop-timeout 100000: want 0 to 300 seconds`},
		{`"WorkingDir":"../x"`, ``, `workdir "../x": want an absolute path other than /`},
		{``, `"Privileged":true`, `--privileged: not allowed here: a container has no privileges`},
		{``, `"privileged":true`, `--privileged: not allowed here: a container has no privileges`},
		{``, `"PidMode":"host"`, `--pid "host": not allowed here: a container has a pid namespace of its own`},
		{``, `"PidMode":"container:x"`, `--pid "container:x": not allowed here: a container has a pid namespace of its own`},
		{``, `"IpcMode":"host"`, `--ipc "host": not allowed here: a container has an ipc namespace of its own`},
		{``, `"UTSMode":"host"`, `--uts "host": not allowed here: a container has a uts namespace of its own`},
		{``, `"UsernsMode":"host"`, `--userns "host": not allowed here: the node decides that`},
		{``, `"CgroupnsMode":"host"`, `--cgroupns "host": not allowed here: a container has a cgroup namespace of its own`},
		{``, `"NetworkMode":"host"`, `--network "host": not allowed here: want none`},
		{``, `"NetworkMode":"bridge"`, `--network "bridge": not allowed here: want none`},
		{``, `"NetworkMode":"container:x"`, `--network "container:x": not allowed here: want none`},
		{``, `"PortBindings":{"80/tcp":[{}]}`, `--publish: not allowed here: there is no network`},
		{``, `"DeviceRequests":[{"Count":-1}]`, `--gpus: not allowed here: a container gets the slot's devices`},
		{``, `"Devices":[{"PathOnHost":"/dev/nvidia1"}]`, `--device: not allowed here: a container gets the slot's devices`},
		{``, `"DeviceCgroupRules":["c 195:* rw"]`, `--device-cgroup-rule: not allowed here: a container gets the slot's devices`},
		{``, `"GroupAdd":["0"]`, `--group-add: not allowed here: a container gets the groups of the slot's devices`},
		{``, `"CapAdd":["SYS_ADMIN"]`, `--cap-add: not allowed here: a container has no capabilities`},
		{``, `"SecurityOpt":["seccomp=unconfined"]`, `--security-opt "seccomp=unconfined": not allowed here: want no-new-privileges`},
		{``, `"SecurityOpt":["no-new-privileges:false"]`, `--security-opt "no-new-privileges:false": not allowed here: want no-new-privileges`},
		{``, `"MaskedPaths":[]`, `--security-opt systempaths: not allowed here: want no-new-privileges`},
		{``, `"Runtime":"nvidia"`, `--runtime "nvidia": not allowed here: the node decides that`},
		{``, `"CgroupParent":"/"`, `--cgroup-parent: not allowed here: a container runs in the slot's slice`},
		{``, `"Sysctls":{"kernel.shmmax":"1"}`, `--sysctl: not allowed here: the node decides that`},
		{``, `"StorageOpt":{"size":"1"}`, `--storage-opt: not allowed here: the node decides that`},
		{``, `"VolumesFrom":["x"]`, `--volumes-from: not allowed here: want only the job's directory`},
		{``, `"Links":["x"]`, `--link: not allowed here: there is no network`},
		{``, `"RestartPolicy":{"Name":"always"}`, `--restart: not allowed here: want no`},
		{``, `"Binds":["/:/host"]`, `volume "/:/host": only the job's directory`},
		{``, `"Binds":["data:/data"]`, `volume "data:/data": only the job's directory`},
		{``, `"Binds":["/run/docker.sock:/run/docker.sock"]`, `volume "/run/docker.sock:/run/docker.sock": only the job's directory`},
		{``, `"Binds":["` + r.temp + `/other:/workdir"]`, `only the job's directory`},
		{``, `"Binds":["` + r.temp + `:/workdir"]`, `only the job's directory`},
		{``, `"Binds":["` + job + `/..:/workdir"]`, `only the job's directory`},
		{``, `"Binds":["` + job + `/sub:/workdir"]`, `only the job's directory`},
		{``, `"Binds":["` + r.temp + `/../` + filepath.Base(r.temp) + `/buildkite-job-1:/workdir"]`, `only the job's directory`},
		{``, `"Binds":["` + r.temp + `/buildkite-job-link:/workdir"]`, `only the job's directory: got a link or no directory`},
		{``, `"Binds":["` + r.temp + `/buildkite-job-file:/workdir"]`, `only the job's directory: got a link or no directory`},
		{``, `"Binds":["` + r.temp + `/buildkite-job-none:/workdir"]`, `only the job's directory: no such file or directory`},
		{``, `"Binds":["` + job + `:/workdir:rshared"]`, `only the job's directory, rw`},
		{``, `"Binds":["` + job + `:/etc/x"]`, `want a path outside /etc`},
		{``, `"Binds":["` + job + `:/proc"]`, `want a path outside /proc`},
		{``, `"Binds":["` + job + `:/"]`, `want an absolute path other than /`},
		{``, `"Binds":["` + job + `"]`, `want an absolute path other than /`},
		{``, `"Binds":["` + job + `:/a:rw:x"]`, `only the job's directory`},
		{``, `"Mounts":[{"Type":"bind","Source":"/","Target":"/host"}]`, `volume "bind /:/host": only the job's directory`},
		{``, `"Mounts":[{"Type":"volume","Source":"` + job + `","Target":"/host"}]`, `only the job's directory`},
		{``, `"Tmpfs":{"/etc":""}`, `--tmpfs "/etc": want /tmp, /var/tmp or /run`},
		{``, `"Tmpfs":{"/tmp":"size=1g,suid"}`, `--tmpfs /tmp: option "suid": want rw, exec, noexec, nosuid, nodev, size=N or mode=N`},
		{``, `"Tmpfs":{"/tmp":"size=99999999999g"}`, `--tmpfs /tmp: option "size=99999999999g": want`},
		{``, `"Ulimits":[{"Name":"nproc","Soft":1,"Hard":1}]`, `--ulimit "nproc": want memlock, core, nofile or stack`},
		{``, `"Ulimits":[{"Name":"core","Soft":-1,"Hard":-1}]`, `--ulimit core: got -1:-1, want 0`},
	} {
		config := c.config
		if !strings.Contains(config, "Image") {
			config = strings.TrimPrefix(config+`,"Image":"runner:1"`, ",")
		}
		status, text := r.ask("POST", "/containers/create", `{`+config+`,"HostConfig":{`+c.host+`}}`)
		if status != http.StatusForbidden || !strings.HasPrefix(text, "kbnode: ") || !strings.Contains(text, c.want) || strings.ContainsAny(text, "\n\r") {
			t.Errorf("%s %s: status %d, %q; want %d, %q", c.config, c.host, status, text, http.StatusForbidden, c.want)
		}
	}
	if slices.Contains(r.requests(), "POST /containers/create") {
		t.Error("the engine was asked for a container")
	}
}

func TestBodiesThatAreNone(t *testing.T) {
	r := newRig(t)
	for body, want := range map[string]string{
		``:                             "kbnode: creating a container: got a request that is not docker's: no JSON object",
		`{"Image":"runner:1"} {"x":1}`: "kbnode: creating a container: got a request that is not docker's: no JSON object",
		`{"Env":"SECRET"}`:             "kbnode: creating a container: got a request that is not docker's: field Env is a string",
		`{"HostConfig":{"Memory":true,"Privileged":"SECRET"}}`: "kbnode: creating a container: got a request that is not docker's: field HostConfig.Privileged is a string",
	} {
		if status, text := r.ask("POST", "/containers/create", body); status != http.StatusBadRequest || text != want {
			t.Errorf("%s: status %d, %q; want %q", body, status, text, want)
		}
	}
	if status, text := r.ask("POST", "/containers/create", `{"Image":"`+strings.Repeat("x", maxBody)+`"}`); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of more than %d bytes: status %d, %q", maxBody, status, text)
	}
}

// An image that is pinned and gone does not make the client pull another.
func TestPinnedImageThatIsGone(t *testing.T) {
	r := newRig(t)
	r.missing = true
	status, text := r.ask("POST", "/containers/create", `{"Image":"runner:1"}`)
	if want := "kbnode: image runner:1 is pinned to " + testID + ", which the engine does not have any more: kbnode image update runner:1"; status != 500 || text != want {
		t.Errorf("status %d, %q; want %q", status, text, want)
	}
}

func TestEndpoints(t *testing.T) {
	r := newRig(t)
	r.add("mine", map[string]string{node.SlotLabel: "gpu0"})
	r.add("others", map[string]string{node.SlotLabel: "gpu1"})
	r.add("vendors", nil)
	const no = "kbnode: not allowed here: "
	for _, c := range []struct {
		method, path string
		status       int
		want         string // the body, when not empty
		asked        string // the last request to the engine, when not empty
	}{
		{"GET", "/_ping", 200, "", "GET /_ping"},
		{"HEAD", "/_ping", 200, "", "HEAD /_ping"},
		{"GET", "/v1.45/version", 200, "", "GET /v1.45/version"},
		{"GET", "/v1.45/networks?filters=%7B%22name%22%3A%7B%22none%22%3Atrue%7D%7D", 200, "", ""},
		{"GET", "/v1.45/networks?filters=%7B%22name%22%3A%7B%22host%22%3Atrue%7D%7D", 200, "[]\n", ""},
		{"GET", "/images/runner:1/json", 200, "", "GET /images/" + testID + "/json"},
		{"GET", "/images/busybox/json", 403, `kbnode: image "busybox": want one of ["runner:1" "unpinned:1"]`, ""},
		{"GET", "/v1.45/containers/mine/json", 200, "", "GET /v1.45/containers/mine/json"},
		{"POST", "/v1.45/containers/mine/attach?stream=1", 204, "", "POST /v1.45/containers/mine/attach"},
		{"POST", "/containers/mine/kill?signal=TERM", 204, "", "POST /containers/mine/kill"},
		{"POST", "/containers/mine/stop", 204, "", "POST /containers/mine/stop"},
		{"POST", "/containers/mine/resize?h=1&w=2", 204, "", "POST /containers/mine/resize"},
		{"GET", "/containers/mine/logs", 204, "", "GET /containers/mine/logs"},
		{"GET", "/containers/others/json", 404, "No such container: others", ""},
		{"POST", "/containers/others/stop", 404, "No such container: others", ""},
		{"POST", "/containers/others/attach", 404, "No such container: others", ""},
		{"POST", "/containers/vendors/kill", 404, "No such container: vendors", ""},
		{"DELETE", "/containers/vendors", 404, "No such container: vendors", ""},
		{"POST", "/containers/none/wait", 404, "No such container: none", ""},
		{"POST", "/containers/mine/exec", 403, no + "POST /containers/mine/exec", ""},
		{"GET", "/containers/mine/archive?path=/", 403, no + "GET /containers/mine/archive", ""},
		{"POST", "/containers/mine/update", 403, no + "POST /containers/mine/update", ""},
		{"POST", "/containers/mine/rename?name=x", 403, no + "POST /containers/mine/rename", ""},
		{"POST", "/containers/mine/../others/stop", 403, no + "POST /containers/mine/../others/stop", ""},
		{"POST", "/containers/mine%2F..%2Fothers/stop", 403, no + "POST /containers/mine%2F..%2Fothers/stop", ""},
		{"POST", "/v1.45/v1.45/containers/mine/stop", 403, no + "POST /v1.45/containers/mine/stop", ""},
		{"POST", "//containers/mine/stop", 403, no + "POST //containers/mine/stop", ""},
		{"POST", "/containers/prune", 403, no + "POST /containers/prune", ""},
		{"POST", "/build", 403, no + "POST /build", ""},
		{"POST", "/v1.45/images/create?fromImage=x", 403, no + "POST /images/create", ""},
		{"POST", "/networks/create", 403, no + "POST /networks/create", ""},
		{"GET", "/volumes", 403, no + "GET /volumes", ""},
		{"POST", "/session", 403, no + "POST /session", ""},
		{"POST", "/grpc", 403, no + "POST /grpc", ""},
		{"POST", "/swarm/init", 403, no + "POST /swarm/init", ""},
		{"GET", "/events", 403, no + "GET /events", ""},
		{"GET", "/containers/json?filters=%7B%22ancestor%22%3A%7B%22x%22%3Atrue%7D%7D", 403, `kbnode: filter "ancestor": want one of ["id" "name" "label" "status" "exited"]`, ""},
	} {
		before := len(r.requests())
		status, text := r.ask(c.method, c.path, `{"Privileged":true}`)
		if status != c.status || c.want != "" && text != c.want {
			t.Errorf("%s %s: status %d, %q; want %d, %q", c.method, c.path, status, text, c.status, c.want)
		}
		all := r.requests()[before:]
		if c.asked == "" && status == 403 && len(all) > 0 {
			t.Errorf("%s %s: the engine was asked %q", c.method, c.path, all)
		}
		if c.asked != "" && (len(all) == 0 || all[len(all)-1] != c.asked) {
			t.Errorf("%s %s: the engine was asked %q, want %q", c.method, c.path, all, c.asked)
		}
		if c.asked != "" && len(r.body(strings.TrimPrefix(c.asked, c.method+" "))) > 0 {
			t.Errorf("%s %s: the body was passed on", c.method, c.path)
		}
	}
}

// Only an attached container takes a connection over, and it carries no HTTP.
func TestUpgrades(t *testing.T) {
	r := newRig(t)
	r.add("mine", map[string]string{node.SlotLabel: "gpu0"})
	for _, c := range []struct{ method, path, asks, want string }{
		{"POST", "/containers/mine/attach", "tcp", "tcp"},
		{"POST", "/containers/mine/attach", "h2c", ""},
		{"POST", "/containers/mine/start", "tcp", ""},
		{"GET", "/_ping", "h2c", ""},
		{"GET", "/version", "tcp", ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, r.server.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {c.asks}, "Http2-Settings": {"AAMAAABk"}, "X-Other": {"x"}}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		r.locked(func() {
			got := r.headers[c.path]
			if got.Get("Upgrade") != c.want || got.Get("Http2-Settings") != "" || got.Get("X-Other") != "" {
				t.Errorf("%s %s with Upgrade %s: the engine gets %v", c.method, c.path, c.asks, got)
			}
		})
	}
}

// A listing shows the slot's containers, and nothing of a query is passed on that
// is not known.
func TestList(t *testing.T) {
	r := newRig(t)
	r.add("mine", map[string]string{node.SlotLabel: "gpu0", "com.buildkite.job-id": "1"})
	r.add("others", map[string]string{node.SlotLabel: "gpu1", "com.buildkite.job-id": "1"})
	for _, path := range []string{
		"/containers/json?all=1&new=1",
		`/containers/json?all=1&filters={"label":{"com.buildkite.job-id=1":true}}`,
		`/containers/json?all=1&filters={"label":["com.buildkite.job-id=1"]}`,
	} {
		_, text := r.ask("GET", strings.NewReplacer(`"`, "%22", "{", "%7B", "}", "%7D").Replace(path), "")
		if !strings.Contains(text, `"mine"`) || strings.Contains(text, "others") || strings.Contains(r.query("/containers/json"), "new=") {
			t.Errorf("%s: %s; asked %s", path, text, r.query("/containers/json"))
		}
	}
}

// What the last job left is gone before a container is made, and what is to be done
// after it is done by then.
func TestLeftovers(t *testing.T) {
	checked, told := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(o *Options) {
		o.Ended = func(context.Context) error { close(told); <-checked; return errors.New("no GPU") }
	})
	r.add("others", map[string]string{node.SlotLabel: "gpu1"})
	first := r.created(`{"Image":"runner:1"}`)
	for range 2 {
		if status, text := r.ask("POST", "/containers/"+first+"/start", ""); status != http.StatusNoContent {
			t.Fatalf("start: status %d, %s", status, text)
		}
	}
	second := make(chan string, 1)
	go func() { second <- r.created(`{"Image":"runner:1"}`) }() // ends when the check has
	<-told
	if n := len(slices.DeleteFunc(r.requests(), func(s string) bool { return s != "POST /containers/create" })); n != 1 {
		t.Errorf("the engine was asked for %d containers, want 1 while the check runs", n)
	}
	close(checked) // a second call would panic at close(told)
	if id := <-second; id == first {
		t.Errorf("the second container is the first, %s", id)
	}
	r.locked(func() {
		if r.containers[first] != nil || r.containers["others"] == nil {
			t.Errorf("there are %v, want others and the second", r.containers)
		}
	})
}

func TestContainersThatRanAreRecorded(t *testing.T) {
	records := make(chan audit.Record, 2)
	r := newRig(t, func(o *Options) { o.Audit = func(r audit.Record) error { records <- r; return nil } })
	labels := `"Labels":{"com.buildkite.job_id":"j1","com.buildkite.pipeline_slug":"p","com.buildkite.build_number":"7","com.buildkite.step_key":"a\nb"}`
	r.created(`{"Image":"runner:1",` + labels + `}`) // is not started
	id := r.created(`{"Image":"runner:1",` + labels + `}`)
	if status, text := r.ask("POST", "/containers/"+id+"/start", ""); status != http.StatusNoContent {
		t.Fatalf("start: status %d, %s", status, text)
	}
	r.end(id)
	got := <-records
	if got.Began.IsZero() || got.Ended.Before(got.Began) {
		t.Errorf("it began at %v and ended at %v", got.Began, got.Ended)
	}
	got.Began, got.Ended = time.Time{}, time.Time{}
	if want := (audit.Record{Slot: "gpu0", Job: "j1", Pipeline: "p", Build: "7", Step: "a b", Image: testID, Status: 3}); got != want {
		t.Errorf("recorded %+v, want %+v", got, want)
	}
	r.created(`{"Image":"runner:1"}`)
	if len(records) != 0 {
		t.Errorf("%d more records, want none", len(records))
	}
}

// A process that its driver does not let end keeps its container: the slot is told,
// and not by the next job's failure only.
func TestLeftoversThatStay(t *testing.T) {
	var told []string
	r := newRig(t, func(o *Options) {
		o.Stuck = func(_ context.Context, why error) { told = append(told, why.Error()) }
	})
	r.stuck = true
	r.add("mine", map[string]string{node.SlotLabel: "gpu0"})
	status, text := r.ask("POST", "/containers/create", `{"Image":"runner:1"}`)
	const want = "removing container mine: the engine says 500: did not receive an exit event"
	if status != http.StatusInternalServerError || !strings.HasSuffix(text, want) || len(told) != 1 || told[0] != want {
		t.Errorf("status %d, %s; told %q; want %q", status, text, told, want)
	}
}

// What a job's user left is removed at the agent's request, whatever its owner and mode.
func TestClean(t *testing.T) {
	var told []string
	r := newRig(t, func(o *Options) {
		o.Stuck = func(_ context.Context, why error) { told = append(told, why.Error()) }
	})
	r.add("mine", map[string]string{node.SlotLabel: "gpu0"})
	r.add("other", map[string]string{node.SlotLabel: "gpu1"})
	for _, dir := range []string{"buildkite-job-1/sealed/x", "buildkite-job-2/sticky", "other"} {
		if err := os.MkdirAll(filepath.Join(r.temp, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.Chmod(filepath.Join(r.temp, "buildkite-job-1/sealed"), 0),
		os.WriteFile(filepath.Join(r.temp, "buildkite-job-2/sticky/file"), nil, 0),
		os.Chmod(filepath.Join(r.temp, "buildkite-job-2/sticky"), 0o700|fs.ModeSticky),
	); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		for _, name := range []string{"buildkite-job-1/sealed", "buildkite-job-2/sticky", "buildkite-job-2/sticky/file"} {
			if err := os.Chown(filepath.Join(r.temp, name), r.JobUID, r.GID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if status, text := r.ask("POST", Clean, ""); status != http.StatusNoContent || len(told) > 0 {
		t.Errorf("status %d, %s; told %q", status, text, told)
	}
	left, err := os.ReadDir(r.temp)
	if err != nil || len(left) != 1 || left[0].Name() != "other" {
		t.Errorf("left %v, %v", left, err)
	}
	r.locked(func() {
		if len(r.containers) != 1 || r.containers["other"] == nil {
			t.Errorf("containers: %v, want the other slot's", r.containers)
		}
	})

	// The slot's user puts a link there: nothing is removed, and the slot is retired.
	if err := errors.Join(os.Remove(filepath.Join(r.temp, "other")), os.Remove(r.temp), os.Symlink(t.TempDir(), r.temp)); err != nil {
		t.Fatal(err)
	}
	if status, text := r.ask("POST", Clean, ""); status != http.StatusInternalServerError || !strings.Contains(text, "got a link") || len(told) != 1 {
		t.Errorf("status %d, %s; told %q, want a refusal", status, text, told)
	}
}

// A job may create its artifact with mode 0 and put a link beside it. Only the artifact
// changes.
func TestShare(t *testing.T) {
	r := newRig(t)
	outside := filepath.Join(t.TempDir(), "outside")
	job := filepath.Join(r.temp, "buildkite-job-1")
	artifact := filepath.Join(job, "result.json")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(job, "sealed"), 0o700), os.WriteFile(artifact, nil, 0), os.WriteFile(outside, nil, 0o600),
		os.Symlink(outside, filepath.Join(job, "link")), os.Chmod(filepath.Join(job, "sealed"), 0), os.Symlink(filepath.Dir(outside), filepath.Join(r.temp, "buildkite-job-2")),
	); err != nil {
		t.Fatal(err)
	}
	if status, text := r.ask("POST", Share, ""); status != http.StatusNoContent {
		t.Errorf("status %d, %s", status, text)
	}
	for name, want := range map[string]fs.FileMode{artifact: 0o440, outside: 0o600, filepath.Join(job, "sealed"): fs.ModeDir} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want mode %v", name, info.Mode(), err, want)
		}
	}
}

func (r *rig) locked(f func()) {
	r.fake.mu.Lock()
	defer r.fake.mu.Unlock()
	f()
}

func TestProxiesThatAreNone(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"got no slot":                func(o *Options) { o.Slot = nil },
		"got users 0 and 1, group 1": func(o *Options) { o.UID, o.GID = 0, 1 },
		"got 0 bytes":                func(o *Options) { o.Slot.MemoryBytes = 0 },
		"0 processes":                func(o *Options) { o.Slot.Pids = 0 },
		`cores ""`:                   func(o *Options) { o.Slot.CPUs = "" },
		"got no pins":                func(o *Options) { o.Pins = nil },
	} {
		o := Options{Slot: slot(), UID: 1, GID: 1, JobUID: 1, Pins: func() (*node.Pins, error) { return nil, nil }}
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New: %v, want %q", err, name)
		}
	}
}

// Nothing of a stopped slot's user stays, wherever a job without a container wrote.
func TestReapEmptiesTheUsersDirectories(t *testing.T) {
	root, s := t.TempDir(), slot()
	for _, dir := range s.UserDirs() {
		path := filepath.Join(root, dir)
		if err := errors.Join(
			os.MkdirAll(filepath.Join(path, "deep", "er"), 0o700),
			os.WriteFile(filepath.Join(path, ".hidden"), nil, 0),
			os.Symlink(root, filepath.Join(path, "link")),
			os.Chmod(filepath.Join(path, "deep"), 0),
		); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Reap(t.Context(), s, "", root); err != nil {
		t.Error(err)
	}
	for _, dir := range s.UserDirs() {
		if left, err := os.ReadDir(filepath.Join(root, dir)); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v, want an empty directory", dir, left, err)
		}
	}
}

// Whatever is asked for, the engine gets nothing but what a step has a say in.
func FuzzCreate(f *testing.F) {
	f.Add([]byte(rendered("/tmp")))
	f.Add([]byte(`{"image":"runner:1","hostconfig":{"privileged":false,"Tmpfs":{"/tmp":"size=1k"}}}`))
	f.Add([]byte(`{"Image":"runner:1","HostConfig":{"Binds":["/:/host"],"CapAdd":["ALL"]},"Env":["KERNELBOT_A=1","PATH=/"]}`))
	p, err := New(Options{Slot: slot(), UID: 4321, GID: 4322, JobUID: 4323, TempDir: "/nonexistent", Pins: func() (*node.Pins, error) {
		return &node.Pins{Images: map[string]node.Pin{testImage: {ID: testID}}}, nil
	}})
	if err != nil {
		f.Fatal(err)
	}
	own := p.limits()
	f.Fuzz(func(t *testing.T, body []byte) {
		var a asked
		if json.Unmarshal(body, &a) != nil {
			return
		}
		g, err := p.build(&a)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r\x1b") {
				t.Errorf("refused in more than a line: %q", err)
			}
			return
		}
		if g.Image != testID || g.User != "4323:4322" || g.Labels[node.SlotLabel] != "gpu0" || len(g.HostConfig.Mounts) > 0 {
			t.Errorf("image %q, user %q, labels %v, mounts %v", g.Image, g.User, g.Labels, g.HostConfig.Mounts)
		}
		for _, entry := range g.Env[2:] {
			if name, _, _ := strings.Cut(entry, "="); !Passes(name) {
				t.Errorf("variable %q", entry)
			}
		}
		for at, options := range g.HostConfig.Tmpfs {
			if !strings.HasPrefix(options, "rw,nosuid,nodev,") || !slices.Contains([]string{"/tmp", "/var/tmp", "/run"}, at) {
				t.Errorf("tmpfs %q: %q", at, options)
			}
		}
		h := g.HostConfig
		if h.ShmSize < 0 || h.ShmSize > p.Slot.MemoryBytes {
			t.Errorf("shm-size %d", h.ShmSize)
		}
		h.Mounts, h.Tmpfs, h.ShmSize, h.Ulimits, h.AutoRemove, h.Init = nil, nil, 0, nil, false, nil
		if diff := cmp.Diff(own, h); diff != "" {
			t.Errorf("the slot's own settings (-want +got):\n%s", diff)
		}
	})
}

// A slot's user puts a link to another slot's jobs where its own lie: root, which
// removes what is left of the slot, must not follow it.
func TestRemoveJobsFollowsNoLink(t *testing.T) {
	for _, link := range []string{"gpu0/tmp", "gpu0"} {
		dir := t.TempDir()
		job := filepath.Join(dir, "gpu1", "tmp", "buildkite-job-running")
		if err := os.MkdirAll(job, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(link)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(dir, "gpu1", strings.TrimPrefix(link, "gpu0")), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
		if err := RemoveJobs(filepath.Join(dir, "gpu0", "tmp")); err == nil || !strings.Contains(err.Error(), "got a link") {
			t.Errorf("%s is a link: got %v, want an error", link, err)
		}
		if _, err := os.Stat(job); err != nil {
			t.Errorf("%s is a link: the other slot's job is gone: %v", link, err)
		}
	}
}

// A container gets the machine's proofs to read, whatever it asks for.
func TestProofs(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Proofs = "/var/lib/kbnode/proofs" })
	g, err := r.build(&asked{Image: testImage})
	if err != nil {
		t.Fatal(err)
	}
	want := []mount{{Type: "bind", Source: "/var/lib/kbnode/proofs", Target: schema.ProofDir, ReadOnly: true}}
	if !slices.Equal(g.HostConfig.Mounts, want) {
		t.Errorf("mounts %+v, want %+v", g.HostConfig.Mounts, want)
	}
	for _, at := range []string{schema.ProofDir, filepath.Dir(schema.ProofDir)} {
		if target(at) == nil {
			t.Errorf("a job's directory can be mounted at %s, in place of the proofs", at)
		}
	}
}
