package apply

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/resource"
)

// program puts a script on PATH.
func program(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestUnitStates(t *testing.T) {
	dir := t.TempDir()
	program(t, dir, "systemctl", `echo "$@" > `+dir+`/args
cat <<END
Id=a.service
LoadState=loaded
ActiveState=active
UnitFileState=enabled
ConditionResult=yes
ConditionTimestampMonotonic=17

Id=paused.service
LoadState=loaded
ActiveState=inactive
UnitFileState=disabled
ConditionResult=no
ConditionTimestampMonotonic=19

Id=new.service
LoadState=loaded
ActiveState=inactive
UnitFileState=static
ConditionResult=no
ConditionTimestampMonotonic=0

Id=none.service
LoadState=not-found
ActiveState=inactive
UnitFileState=
ConditionResult=no
ConditionTimestampMonotonic=0

Id=dying.service
LoadState=loaded
ActiveState=deactivating
UnitFileState=enabled
ConditionResult=yes
ConditionTimestampMonotonic=3
END
`)
	s := &Systemctl{Root: "/"}
	states, err := s.States(t.Context(), []string{"a.service", "paused.service", "new.service", "none.service", "dying.service"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]resource.UnitState{
		"a.service":      {Found: true, Enabled: true, Active: true},
		"paused.service": {Found: true, Held: true},
		"new.service":    {Found: true, Static: true},
		"none.service":   {},
		"dying.service":  {Found: true, Enabled: true, Active: true},
	}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Errorf("States (-want +got):\n%s", diff)
	}
	if _, err := s.States(t.Context(), []string{"a.service"}); err == nil {
		t.Error("five answers to one question are taken")
	}
}

// What systemctl says is the error, in one line; a stop that takes too long is no
// failure of the unit.
func TestSystemctlFails(t *testing.T) {
	dir := t.TempDir()
	program(t, dir, "systemctl", "case \"$3\" in stop) exec sleep 600;; reset-failed) exit 1;; esac\necho 'Job for x failed.' >&2\nexit 1\n")
	s := &Systemctl{Root: "/"}
	if err := s.Do(t.Context(), "start", []string{"x"}); err == nil || !strings.Contains(err.Error(), "Job for x failed.") {
		t.Errorf("Start: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Do(ctx, "stop", []string{"x"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop: %v", err)
	}
	w := &work{m: &Machine{Systemd: s}, options: Options{Drain: time.Millisecond}}
	if err := w.stop(t.Context(), []string{"x"}); err == nil || !strings.Contains(err.Error(), "still at work after 1ms") {
		t.Errorf("a drain that takes too long: %v", err)
	}
}

// Nothing is asked of the running system for a machine below a directory.
func TestOffline(t *testing.T) {
	dir := t.TempDir()
	program(t, dir, "systemctl", `echo "$@" >> `+dir+`/calls; case "$*" in *is-enabled*) echo disabled; exit 1;; esac`)
	s := &Systemctl{Root: "/a/root"}
	if _, err := s.States(t.Context(), []string{"x.service"}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Do(t.Context(), "enable", []string{"x"}), s.Do(t.Context(), "start", []string{"x"}), s.Do(t.Context(), "stop", []string{"x"}), s.Do(t.Context(), "restart", []string{"x"}), s.Reload(t.Context())); err != nil {
		t.Fatal(err)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(calls)) {
		if !strings.Contains(line, "--root=/a/root") {
			t.Errorf("called: %s", line)
		}
	}
}

// systemd's own words: only faults in lines of the files count.
func TestVerify(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("NOT RUN: there is no systemd-analyze here")
	}
	dropIn := "kbnode-agent@gpu0.service.d/host.conf"
	units := func(extra string) map[string][]byte {
		return map[string][]byte{
			"kbnode-gpu0.slice":     []byte("[Slice]\nMemoryMax=1G\nAllowedCPUs=0-3\n"),
			"kbnode-agent@.service": []byte("[Unit]\nAfter=no-such-unit.service\n[Service]\nSlice=kbnode-%i.slice\nExecStart=/no/such/program\n" + extra),
			dropIn:                  []byte("[Service]\nNoNewPrivileges=yes\n"),
		}
	}
	m := &Machine{Root: "/", Systemd: &Systemctl{Root: "/"}}
	verify := func(units map[string][]byte) error {
		var want resource.Set
		var actions []resource.Action
		for name, content := range units {
			path := node.UnitDir + "/" + name
			want.Files = append(want.Files, resource.File{Path: path, Content: content})
			actions = append(actions, resource.Action{Kind: resource.KindFile, Verb: resource.Make, Name: path})
		}
		return m.verify(t.Context(), &want, actions)
	}
	if err := verify(units("")); err != nil {
		t.Errorf("right units: %v", err)
	}
	for extra, want := range map[string]string{
		"MemoryMux=1G\n":        "kbnode-agent@.service:6: ",
		"TimeoutStopSec=soon\n": "kbnode-agent@.service:6: ",
	} {
		if err := verify(units(extra)); err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") != 1 {
			t.Errorf("%q: %v, want one line with %s", extra, err, want)
		}
	}
	wrong := units("")
	wrong[dropIn] = []byte("[Service]\nNoNewPrivilges=yes\n")
	if err := verify(wrong); err == nil || !strings.Contains(err.Error(), "host.conf:2: ") {
		t.Errorf("a drop-in with a misspelt key: %v", err)
	}
}
