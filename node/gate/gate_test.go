package gate

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/node"
)

const testImage = "ghcr.io/gpu-mode/kbgen-runner:0.1.0-cuda"

func config() *node.Config {
	return &node.Config{Program: "/usr/bin/kbnode", Agent: node.Agent{Path: "/opt/agent/buildkite-agent"}, Docker: node.Docker{CLI: "/usr/bin/docker"}, Slots: []*node.Slot{
		{Name: "gpu0", Platform: "docker", Images: []string{testImage}, CPUs: "0-3", SliceBytes: 1 << 30, SlicePids: 100},
		{Name: "host0", Platform: "host", Commands: []string{"exec kbrun evaluate", "one\ntwo"}},
	}}
}

// step is the docker plugin as kbgen writes it for a row with node isolation.
const step = `{"image":"` + testImage + `","skip-checkout":true,"mount-buildkite-agent":false,"propagate-uid-gid":true,"init":false,"tty":false,
"network":"none","shm-size":"8g","environment":["KERNELBOT_RUN_ID","KERNELBOT_PAYLOAD_0","SUBMISSION_PAYLOAD"],"ulimits":["memlock=-1","core=0"],
"drop-caps":["ALL"],"security-opts":["no-new-privileges"],"tmpfs":["/tmp:exec,size=8g,mode=1777"]}`

func plugin(source, config string) string { return `[{"` + source + `":` + config + `}]` }

// job is what Buildkite sends for an evaluation.
func job() map[string]string {
	return map[string]string{
		"BUILDKITE": "true", "CI": "true", "BUILDKITE_COMMAND": "exec kbrun evaluate", "BUILDKITE_REPO": "none", "BUILDKITE_SKIP_CHECKOUT": "true",
		"BUILDKITE_PLUGINS": plugin(sources[0], step), "BUILDKITE_ARTIFACT_PATHS": "result.json", "BUILDKITE_AGENT_NAME": "n-gpu0", "BUILDKITE_AGENT_ID": "1",
		"BUILDKITE_AGENT_META_DATA_QUEUE": "h100", "BUILDKITE_ORGANIZATION_SLUG": "gpu-mode", "BUILDKITE_PLUGIN_VALIDATION": "true",
		"KERNELBOT_PAYLOAD": "c2VjcmV0", "KERNELBOT_RUN_ID": "r1", "SUBMISSION_PAYLOAD": "c2VjcmV0", "GPU_QUEUE": "h100", "BUILDKITE_MESSAGE": "m", "BUILDKITE_GIT_SUBMODULES": "false", "BUILDKITE_GIT_REMOTE_MIRROR_URL": "",
	}
}

func TestJobsThatMayRun(t *testing.T) {
	for name, change := range map[string]func(map[string]string){
		"as it is":      func(map[string]string) {},
		"short name":    func(j map[string]string) { j["BUILDKITE_PLUGINS"] = plugin("docker#v5.13.0", step) },
		"no artifacts":  func(j map[string]string) { delete(j, "BUILDKITE_ARTIFACT_PATHS") },
		"two artifacts": func(j map[string]string) { j["BUILDKITE_ARTIFACT_PATHS"] = "result.json;smoke.txt" },
		"a message and a payload of several lines": func(j map[string]string) {
			j["BUILDKITE_MESSAGE"], j["KERNELBOT_PAYLOAD"], j["SUBMISSION_PAYLOAD"] = "a\n\tb\n", "YQ\n==", "YQ\r\n=="
		},
		"init by the default": func(j map[string]string) {
			j["BUILDKITE_PLUGINS"] = strings.Replace(j["BUILDKITE_PLUGINS"], `"init":false,`, "", 1)
		},
	} {
		j := job()
		change(j)
		if _, err := Decide(config(), "gpu0", j); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	four := config()
	four.Agent.Version = "4.0.1"
	j := job()
	j["BUILDKITE_HOOKS_PATH"] = "/etc/kbnode/hooks" // its own
	if _, err := Decide(four, "gpu0", j); err != nil {
		t.Errorf("an agent of version 4: %v", err)
	}
	for _, command := range config().Slots[1].Commands {
		for _, none := range []string{"", "[]", "null"} {
			j := job()
			j["BUILDKITE_PLUGINS"], j["BUILDKITE_COMMAND"] = none, command
			if _, err := Decide(config(), "host0", j); err != nil {
				t.Errorf("host, %q, plugins %q: %v", command, none, err)
			}
		}
	}
}

func TestJobsThatAreRefused(t *testing.T) {
	set := func(name, value string) func(map[string]string) {
		return func(j map[string]string) { j[name] = value }
	}
	plugins := func(value string) func(map[string]string) { return set("BUILDKITE_PLUGINS", value) }
	with := func(old, new string) func(map[string]string) {
		if !strings.Contains(step, old) {
			t.Fatalf("the step has no %s", old)
		}
		return plugins(plugin(sources[0], strings.Replace(step, old, new, 1)))
	}
	more := func(setting string) func(map[string]string) { return with(`"tty":false`, `"tty":false,`+setting) }
	may := func(name string) string { return `variable "` + name + `": a job may not set it on this node` }
	for _, c := range []struct {
		change func(map[string]string)
		want   string
	}{
		{plugins(""), "plugins: got none, want " + sources[0] + ": slot gpu0 runs containers only"},
		{plugins("x"), "plugins: want a list with " + sources[0] + " only"},
		{plugins("[]"), "plugins: got 0, want " + sources[0] + " alone"},
		{plugins(`[{"` + sources[0] + `":` + step + `},{"` + sources[0] + `":` + step + `}]`), "plugins: got 2, want"},
		{plugins(`[{"` + sources[0] + `":` + step + `,"other":null}]`), "plugins: want an object with the key " + sources[0] + " only"},
		{plugins(`[{"` + sources[0] + `":{"privileged":true},"` + sources[0] + `":` + step + `}]`), "plugins: want an object with the key " + sources[0] + " only"},
		{plugins(`["` + sources[0] + `"]`), "plugins: want an object with the key " + sources[0] + " only"},
		{plugins(plugin("github.com/buildkite-plugins/docker-buildkite-plugin#v5.12.0", step)), `plugins: got "github.com/buildkite-plugins/docker-buildkite-plugin#v5.12.0", want ` + sources[0]},
		{plugins(plugin("https://evil.example/docker#v5.13.0", step)), `plugins: got "https://evil.example/docker#v5.13.0", want`},
		{plugins(plugin(sources[0], "null")), "docker plugin: got no settings, want an object"},
		{plugins(plugin(sources[0], `{"image":"`+testImage+`"}`)), "docker plugin: skip-checkout: got none"},
		{plugins(plugin(sources[0], `{"image":"`+testImage+`","image":"busybox","skip-checkout":true,"network":"none"}`)), `docker plugin: "image": got it twice`},
		{with(testImage, "busybox"), `docker plugin: image: got "busybox", want one of ["` + testImage + `"]`},
		{with(`"network":"none"`, `"network":"host"`), `docker plugin: network: got "host", want none`},
		{with(`"network":"none"`, `"network":null`), `docker plugin: network: got null, want none`},
		{with(`"skip-checkout":true`, `"skip-checkout":false`), `docker plugin: skip-checkout: got false, want true`},
		{with(`"mount-buildkite-agent":false`, `"mount-buildkite-agent":true`), `docker plugin: mount-buildkite-agent: got true, want false`},
		{with(`"propagate-uid-gid":true`, `"propagate-uid-gid":"true"`), `docker plugin: propagate-uid-gid: got "true", want true`},
		{with(`"KERNELBOT_RUN_ID"`, `"PATH"`), `docker plugin: environment: got ["PATH",`},
		{with(`"KERNELBOT_RUN_ID"`, `"KERNELBOT_RUN_ID=x"`), `want names of variables`},
		{with(`["KERNELBOT_RUN_ID","KERNELBOT_PAYLOAD_0","SUBMISSION_PAYLOAD"]`, `"KERNELBOT_RUN_ID"`), `want names of variables`},
		{with(`"core=0"`, `"nproc=1"`), `docker plugin: ulimits: got ["memlock=-1","nproc=1"], want limits such as core=0`},
		{with(`"/tmp:exec,size=8g,mode=1777"`, `"/etc:exec"`), `docker plugin: tmpfs: got ["/etc:exec"], want such as`},
		{with(`"/tmp:exec,size=8g,mode=1777"`, `"/tmp:$(id)"`), `docker plugin: tmpfs: got ["/tmp:$(id)"]`},
		{with(`["no-new-privileges"]`, `["seccomp=unconfined"]`), `docker plugin: security-opts: got ["seccomp=unconfined"], want no-new-privileges`},
		{more(`"privileged":true`), `docker plugin: "privileged": the node decides that`},
		{more(`"gpus":"all"`), `docker plugin: "gpus": the node decides that`},
		{more(`"volumes":["/:/host"]`), `docker plugin: "volumes": the node decides that`},
		{more(`"cpus":"64"`), `docker plugin: "cpus": the node decides that`},
		{more(`"memory":"64g"`), `docker plugin: "memory": the node decides that`},
		{more(`"expand-volume-vars":true`), `docker plugin: "expand-volume-vars": the node decides that`},
		{more(`"chown":true`), `docker plugin: "chown": the node decides that`},
		{more(`"run-labels":false`), `docker plugin: "run-labels": the node decides that`},
		{more(`"load":"x"`), `docker plugin: "load": the node decides that`},
		{more(`"leave-container":true`), `docker plugin: "leave-container": the node decides that`},
		{set("BASH_ENV", "$(id)"), may("BASH_ENV")},
		{set("ENV", "x"), may("ENV")},
		{set("LD_PRELOAD", "x"), may("LD_PRELOAD")},
		{set("PATH", "/x"), may("PATH")},
		{set("HOME", "/x"), may("HOME")},
		{set("TMPDIR", "/x"), may("TMPDIR")},
		{set("DOCKER_HOST", "x"), may("DOCKER_HOST")},
		{set("GIT_CONFIG_COUNT", "1"), may("GIT_CONFIG_COUNT")},
		{set("KBNODE_SLOT", "gpu1"), may("KBNODE_SLOT")},
		{set("KB_GPU_INDEX", "1"), may("KB_GPU_INDEX")},
		{set("BASH_FUNC_docker%%", "() { id; }"), may("BASH_FUNC_docker%%")},
		{set("BUILDKITE_PLUGIN_DOCKER_PRIVILEGED", "true"), may("BUILDKITE_PLUGIN_DOCKER_PRIVILEGED")},
		{set("BUILDKITE_PLUGINS_PATH", "/x"), may("BUILDKITE_PLUGINS_PATH")},
		{set("BUILDKITE_HOOKS_PATH", "/x"), may("BUILDKITE_HOOKS_PATH")},
		{set("BUILDKITE_ADDITIONAL_HOOKS_PATHS", "/x"), may("BUILDKITE_ADDITIONAL_HOOKS_PATHS")},
		{set("BUILDKITE_AGENT_BINARY_PATH", "/x"), may("BUILDKITE_AGENT_BINARY_PATH")},
		{set("BUILDKITE_AGENT_JOB_API_SOCKET", "/x"), may("BUILDKITE_AGENT_JOB_API_SOCKET")},
		{set("BUILDKITE_REPO_MIRROR", "/"), may("BUILDKITE_REPO_MIRROR")},
		{set("BUILDKITE_BUILD_CHECKOUT_PATH", "/"), may("BUILDKITE_BUILD_CHECKOUT_PATH")},
		{set("BUILDKITE_ENV_FILE", "/x"), may("BUILDKITE_ENV_FILE")},
		{set("BUILDKITE_GIT_CLONE_FLAGS", "x"), may("BUILDKITE_GIT_CLONE_FLAGS")},
		{set("BUILDKITE_SHELL", "x"), may("BUILDKITE_SHELL")},
		{set("BUILDKITE_AGENT_NAME", "../slots/gpu0/tmp/buildkite-job-1"), `variable BUILDKITE_AGENT_NAME: got "../slots/gpu0/tmp/buildkite-job-1", want letters`},
		{set("BUILDKITE_AGENT_NAME", ".."), `variable BUILDKITE_AGENT_NAME: got "..", want letters`},
		{set("BUILDKITE_PIPELINE_SLUG", "../../tmp"), `variable BUILDKITE_PIPELINE_SLUG: got "../../tmp", want letters`},
		{set("BUILDKITE_SECRETS_CONFIG", `[{"key":"K","environment_variable":"KERNELBOT_K"}]`), may("BUILDKITE_SECRETS_CONFIG")},
		{set("BUILDKITE_AGENT_PROFILE", "cpu"), may("BUILDKITE_AGENT_PROFILE")},
		{set("BUILDKITE_AGENT_ARTIFACT_DELIMITER", "."), may("BUILDKITE_AGENT_ARTIFACT_DELIMITER")},
		{set("BUILDKITE_SKIP_CHECKOUT", "false"), `variable BUILDKITE_SKIP_CHECKOUT: got "false", want true or none`},
		{set("BUILDKITE_REPO", "ext::sh -c id"), `variable BUILDKITE_REPO: got "ext::sh -c id", want a repository's address`},
		{set("BUILDKITE_REPO", "--upload-pack=x"), `variable BUILDKITE_REPO: got "--upload-pack=x"`},
		{set("BUILDKITE_ARTIFACT_PATHS", "**/*"), `artifact_paths: got "**/*", want plain names of files`},
		{set("BUILDKITE_ARTIFACT_PATHS", "result.json;/etc/passwd"), `artifact_paths: got "/etc/passwd"`},
		{set("BUILDKITE_ARTIFACT_PATHS", "../x"), `artifact_paths: got "../x"`},
		{set("X\nY", "1"), `variable "X\nY": a job may not set it`},
		{set("KERNELBOT_X\nY", "1"), `variable "KERNELBOT_X\nY": a job may not set it`},
		{set("BUILDKITE_STEP_X[$(id)]", "1"), `variable "BUILDKITE_STEP_X[$(id)]": a job may not set it`},
		{set("BUILDKITE_DOCKER", "1"), may("BUILDKITE_DOCKER")},
		{set("BUILDKITE_DOCKER_COMPOSE_CONTAINER", "x"), may("BUILDKITE_DOCKER_COMPOSE_CONTAINER")},
		{set("BUILDKITE_LABEL", "a\nBUILDKITE_PLUGIN_DOCKER_ENVIRONMENT_0[$(touch x)]"), "variable BUILDKITE_LABEL: got a control character, want one line of text"},
		{set("KERNELBOT_RUN_ID", "a\nb"), "variable KERNELBOT_RUN_ID: got a control character"},
		{set("BUILDKITE_MESSAGE", "a\x1b[2Jb"), "variable BUILDKITE_MESSAGE: got a control character"},
		{set("BUILDKITE_COMMAND", ""), "command: got none: slot gpu0 runs containers"},
	} {
		j := job()
		c.change(j)
		_, err := Decide(config(), "gpu0", j)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	for want, change := range map[string]func(map[string]string){
		`command: got "id", want one of ["exec kbrun evaluate" "one\ntwo"]`: func(j map[string]string) { j["BUILDKITE_COMMAND"] = "id" },
		`command: got "exec kbrun evaluate; id"`:                            func(j map[string]string) { j["BUILDKITE_COMMAND"] += "; id" },
		`command: got ""`:                                                   func(j map[string]string) { delete(j, "BUILDKITE_COMMAND") },
		"plugins: got some, want none: slot host0":                          plugins(plugin(sources[0], step)),
		may("BASH_ENV"):                                                     set("BASH_ENV", "x"),
		may("KERNELBOT_SANDBOX_READ"):                                       set("KERNELBOT_SANDBOX_READ", "/"),
		may("KERNELBOT_RETAIN"):                                             set("KERNELBOT_RETAIN", "/"),
		may("KERNELBOT_BROKER"):                                             set("KERNELBOT_BROKER", "/run/x"),
		`variable "KERNELBOT_SANDBOX": got none, want a sandbox`:            set("KERNELBOT_SANDBOX", "none"),
	} {
		j := job()
		delete(j, "BUILDKITE_PLUGINS")
		change(j)
		if _, err := Decide(config(), "host0", j); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("host: got %v, want %s", err, want)
		}
	}
	if _, err := Decide(config(), "gpu9", job()); err == nil || !strings.Contains(err.Error(), `slot: got "gpu9"`) {
		t.Errorf("a slot that is none: %v", err)
	}
	if _, err := Decide(&node.Config{Slots: []*node.Slot{{Name: "x", Platform: "vm"}}}, "x", job()); err == nil {
		t.Error("a platform that is none: nil")
	}
}

// Programs on the machine get names of the unit and of the agent, and a job's only on
// a slot without containers.
func TestEnviron(t *testing.T) {
	c := config()
	agent := []string{
		"PATH=/evil", "HOME=/evil", "TMPDIR=/evil", "DOCKER_HOST=tcp://evil", "DOCKER_CONFIG=/evil", "GIT_CONFIG_COUNT=9", "GIT_SSH_COMMAND=x", "KBNODE_SLOT=gpu1",
		"BASH_ENV=/evil", "ENV=/evil", "LD_PRELOAD=/evil", "LD_LIBRARY_PATH=/evil", "BASH_FUNC_docker%%=() { id; }", "BUILDKITE_X%%=() { id; }", "SHELLOPTS=xtrace", "PS4=$(id)", "IFS=x",
		"BUILDKITE_PLUGIN_DOCKER_PRIVILEGED=true", "BUILDKITE_PLUGINS_PATH=/evil", "=x", "",
		"BUILDKITE_AGENT_ACCESS_TOKEN=t", "BUILDKITE_AGENT_ENDPOINT=e", "BUILDKITE_JOB_ID=j", "LANG=C.UTF-8", "KERNELBOT_PAYLOAD=p",
	}
	want := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/agent", "HOME=/nonexistent", "TMPDIR=/var/lib/kbnode/slots/gpu0/tmp", "KBNODE_SLOT=gpu0",
		"BUILDKITE_AGENT_ACCESS_TOKEN=t", "BUILDKITE_AGENT_ENDPOINT=e", "BUILDKITE_JOB_ID=j", "LANG=C.UTF-8",
	}
	if got := Environ(c, c.Slots[0], "/", agent, nil); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	got := Environ(c, c.Slots[1], "/", nil, map[string]string{"KERNELBOT_PAYLOAD": "p", "BUILDKITE_COMMAND": "a=b", "BUILDKITE_HOOKS_PATH": "/evil"})
	if want := []string{"BUILDKITE_COMMAND=a=b", "KERNELBOT_PAYLOAD=p"}; !slices.Equal(got[4:], want) {
		t.Errorf("a job's variables: got %q, want %q", got[4:], want)
	}
}

// Whatever the plugin's settings are, those that pass hold nothing but what kbgen
// may write.
func FuzzPlugins(f *testing.F) {
	f.Add(plugin(sources[0], step))
	f.Add(`[{"docker#v5.13.0":{"image":"x","privileged":null}}]`)
	s := config().Slots[0]
	f.Fuzz(func(t *testing.T, raw string) {
		_, err := container(s, raw)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r\x1b") {
				t.Errorf("refused in more than a line: %q", err)
			}
			return
		}
		var all []map[string]map[string]any
		if err := json.Unmarshal([]byte(raw), &all); err != nil || len(all) != 1 {
			t.Fatalf("passed, and is %v: %s", err, raw)
		}
		for _, settings := range all[0] {
			if settings["image"] != testImage || settings["network"] != "none" || settings["skip-checkout"] != true {
				t.Errorf("passed: %v", settings)
			}
			for key, value := range settings {
				if value == nil || strings.Contains(key, "priv") || strings.Contains(key, "vol") {
					t.Errorf("passed: %s: %v", key, value)
				}
			}
		}
	})
}
