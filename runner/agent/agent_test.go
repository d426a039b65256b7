package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script makes an agent of a shell script.
func script(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "buildkite-agent")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func getenv(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestFind(t *testing.T) {
	job, path, empty := t.TempDir(), t.TempDir(), t.TempDir()
	inJob, onPath := script(t, job, ""), script(t, path, "")
	for _, c := range []struct {
		bin, path, want string
	}{
		{job, path, inJob},
		{empty, path, onPath},
		{"", empty + string(filepath.ListSeparator) + path, onPath},
		{"", empty, ""},
		{"", "", ""},
	} {
		got, err := Find(getenv(map[string]string{"BUILDKITE_BIN_PATH": c.bin, "PATH": c.path}))
		if got != c.want || (err != nil) != (c.want == "") || err != nil && !errors.Is(err, ErrNotFound) {
			t.Errorf("Find(%q, %q) = %q, %v, want %q", c.bin, c.path, got, err, c.want)
		}
	}
	// An entry that means the current directory would run what a job put there.
	t.Chdir(job)
	if got, err := Find(getenv(map[string]string{"PATH": ":."})); err == nil {
		t.Errorf("Find takes %q from the current directory", got)
	}
}

func TestMissing(t *testing.T) {
	if got := Missing(getenv(map[string]string{"BUILDKITE_JOB_ID": "j"})); got != "BUILDKITE_AGENT_ACCESS_TOKEN" {
		t.Errorf("Missing = %q without a token", got)
	}
	if got := Missing(getenv(map[string]string{"BUILDKITE_JOB_ID": "j", "BUILDKITE_AGENT_ACCESS_TOKEN": "t"})); got != "" {
		t.Errorf("Missing = %q inside of a job", got)
	}
}

func TestCall(t *testing.T) {
	dir := t.TempDir()
	a := Agent{Path: script(t, dir, `case $1 in
fail) echo first; printf 'the \033[31mlast\033[0m line\n'; exit 3 ;;
hang) exec sleep 1000 ;;
*) cat >"$OUT" ;;
esac`), Environ: []string{"PATH=" + os.Getenv("PATH"), "OUT=" + filepath.Join(dir, "out")}}
	if err := a.Call(context.Background(), time.Minute, "", "foreign text", "annotate"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "out")); string(got) != "foreign text" {
		t.Errorf("the agent got %q on stdin, %v", got, err)
	}
	err := a.Call(context.Background(), time.Minute, "", "", "fail", "upload", "secret.txt")
	if want := "buildkite-agent fail upload: exit status 3: the last line"; err == nil || err.Error() != want {
		t.Errorf("Call = %v, want %q", err, want)
	}
	err = a.Call(context.Background(), 50*time.Millisecond, "", "", "hang")
	if err == nil || !strings.Contains(err.Error(), "buildkite-agent hang: not done after 50ms") {
		t.Errorf("Call = %v, want the limit", err)
	}
}
