package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An agent that somebody starts by hand works with what kblocal prints for it.
func TestAgentOfOnesOwn(t *testing.T) {
	t.Parallel()
	steps := filepath.Join(t.TempDir(), "steps.yml")
	if err := os.WriteFile(steps, []byte("steps: [{command: echo by hand > out.txt, key: a, artifact_paths: out.txt, agents: {queue: mine, kind: own}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	u := startUp(t, "--agents", "0", "--pipeline", "p="+steps)
	u.request("GET", "v2/meta", "") // it serves
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	base := t.TempDir()
	s := command(t, ctx, nil, "", filepath.Join(bin, "kblocal"), "agent", "--dir", u.dir, "--queue", "mine", "--tag", "kind=own", "--base", base)
	s.want(t, 0, `tags="queue=mine,kind=own"`)
	config := filepath.Join(base, "agent.cfg")
	if err := os.WriteFile(config, []byte(s.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	sockets, err := os.MkdirTemp("", "kb") // short: socket paths have at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	cmd := exec.Command(agent, "start", "--config", config, "--disconnect-after-job", "--sockets-path", sockets, "--no-color")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "TMPDIR=" + base}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	builds := "v2/organizations/gpu-mode/pipelines/p/builds"
	if status, text := u.request("POST", builds, `{"commit": "HEAD", "branch": "main"}`); status != 201 {
		t.Fatalf("creating a build: %d %s", status, text)
	}
	select {
	case err := <-ended: // after its job
		if err != nil {
			t.Errorf("the agent: %v\n%s", err, &out)
		}
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		t.Fatalf("the agent had no job\n%s", &out)
	}
	waitFor(t, "the end of the build", func() bool {
		_, text := u.request("GET", builds+"/1", "")
		return strings.Contains(text, `"state":"passed"`)
	})

	// What is handed out names the host that the caller reached.
	api, err := url.Parse(u.vars["KBLAUNCH_API_URL"])
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest("GET", api.String()+builds+"/1/artifacts", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+u.vars["BUILDKITE_API_TOKEN"])
	req.Host = "10.0.2.2:" + api.Port()
	var artifacts []struct {
		URL      string `json:"download_url"`
		Filename string
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&artifacts); err != nil {
		t.Fatal(err)
	}
	if len(artifacts) != 1 || artifacts[0].Filename != "out.txt" || !strings.HasPrefix(artifacts[0].URL, "http://10.0.2.2:"+api.Port()+"/") {
		t.Errorf("a guest is told of %+v", artifacts)
	}
	for _, name := range []string{"page.url", "buildkite-agent.cfg"} {
		if info, err := os.Stat(filepath.Join(u.dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want a file for one user", name, info, err)
		}
	}
	if strings.Contains(u.log.String(), "bkct_") || strings.Contains(u.log.String(), "key=") {
		t.Errorf("a secret is in the log:\n%s", u.log)
	}
}

func TestAgentConfigRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args   []string
		status int
		stderr string
	}{
		{nil, 2, "--dir is missing"},
		{[]string{"--dir", "/nonexistent"}, 1, "no kblocal is serving from /nonexistent"},
		{[]string{"--dir", "/nonexistent", "--queue", "a,b"}, 2, `--queue "a,b": want the name of a queue`},
		{[]string{"--dir", "/nonexistent", "--spawn", "0"}, 2, "--spawn 0: want 1 to 64"},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		s := command(t, ctx, []string{"KBLOCAL_DIR="}, "", filepath.Join(bin, "kblocal"), append([]string{"agent"}, tt.args...)...)
		cancel()
		if s.status != tt.status || !strings.Contains(s.stderr, tt.stderr) || s.stdout != "" {
			t.Errorf("kblocal agent %q = %d\nstdout %q\nstderr %q\nwant %d and %q", tt.args, s.status, s.stdout, s.stderr, tt.status, tt.stderr)
		}
	}
}

// Plugins come from a directory, as a git repository or as the content of one
// version, and no network is asked.
func TestPluginsOffline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("greet-buildkite-plugin@v1.2.0/hooks/command", "#!/bin/bash\necho \"hello $BUILDKITE_PLUGIN_GREET_WHO\"\n")
	write("else/where-buildkite-plugin/hooks/pre-command", "#!/bin/bash\necho \"from a clone\"\n")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	command(t, ctx, nil, "", "sh", "-c", `cd "$1" && git init -q && git add -A && git -c user.name=x -c user.email=x@y commit -qm v && git tag v2`,
		"sh", filepath.Join(dir, "else", "where-buildkite-plugin")).want(t, 0)
	s := runPipeline(t, "steps: [{key: a, plugins: [{greet#v1.2.0: {who: me}}]}, {key: b, command: echo own, plugins: ['else/where#v2']}]", "-", "--here", "--plugins", dir)
	s.want(t, 0, "[a] hello me", "[b] from a clone", "[b] own")
	s = runPipeline(t, "steps: [{command: x}]", "-", "--plugins", t.TempDir())
	if s.status != 1 || !strings.Contains(s.stderr, "holds no git repository and no NAME@VERSION") {
		t.Errorf("an empty directory: status %d, %s", s.status, s.stderr)
	}
}
