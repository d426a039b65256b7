package kbgen

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// The version under which the test publishes what is tracked.
var published = module.Version{Path: "github.com/gpu-mode/kbgen", Version: "v0.0.1"}

// TestModuleZip checks that the tracked files, and those about to be, make a module
// that a module proxy can serve: the format refuses no name and omits no directory.
func TestModuleZip(t *testing.T) { publish(t, t.TempDir()) }

// TestSlowModuleCanBeInstalled builds every command with go install from such a
// module, so that nothing outside the module is needed.
func TestSlowModuleCanBeInstalled(t *testing.T) {
	testenv.NeedSlow(t)
	dir := t.TempDir()
	proxy := filepath.Join(dir, "proxy")
	publish(t, proxy)

	cache := strings.TrimSpace(goTool(t, nil, "env", "GOMODCACHE"))
	bin := filepath.Join(dir, "bin")
	goTool(t, []string{
		// Dependencies come from the cache that built this test: no network.
		"GOPROXY=file://" + filepath.ToSlash(proxy) + ",file://" + filepath.ToSlash(filepath.Join(cache, "cache", "download")),
		"GOMODCACHE=" + filepath.Join(dir, "cache"), "GOFLAGS=-modcacherw -trimpath", "GONOSUMDB=*", "GONOSUMCHECK=1", "GOSUMDB=off",
		"GOBIN=" + bin, "GOWORK=off", "CGO_ENABLED=0",
	}, "install", published.Path+"/cmd/...@"+published.Version)

	commands, err := filepath.Glob("cmd/kb*")
	if err != nil || len(commands) < 4 {
		t.Fatalf("found the commands %q, %v", commands, err)
	}
	for _, command := range commands {
		name := filepath.Base(command)
		out, err := exec.Command(filepath.Join(bin, name), "--version").CombinedOutput()
		if want := name + " " + published.Version + "\n"; err != nil || string(out) != want {
			t.Errorf("%s --version, installed, prints %q (%v), want %q", name, out, err, want)
		}
	}
}

// publish makes the files from which a module proxy serves the tracked tree.
func publish(t *testing.T, proxy string) {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var files []zip.File
	for _, name := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() { // deleted files are still listed
			files = append(files, tracked(name))
		}
	}
	checked, err := zip.CheckFiles(files)
	if err != nil {
		t.Errorf("the module format refuses: %v", err)
	}
	for _, omitted := range checked.Omitted {
		if !within(omitted.Path, "tools") {
			t.Errorf("the module format leaves %s out: %v", omitted.Path, omitted.Err)
		}
	}
	var archive bytes.Buffer
	if err := zip.Create(&archive, published, files); err != nil {
		t.Fatal(err)
	}
	info, err := json.Marshal(map[string]string{"Version": published.Version, "Time": "2026-01-01T00:00:00Z"})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(proxy, filepath.FromSlash(published.Path), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"list": []byte(published.Version + "\n"), published.Version + ".info": info,
		published.Version + ".mod": mod, published.Version + ".zip": archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tracked is a file for package zip.
type tracked string

func (f tracked) Path() string                 { return string(f) }
func (f tracked) Lstat() (fs.FileInfo, error)  { return os.Lstat(string(f)) }
func (f tracked) Open() (io.ReadCloser, error) { return os.Open(string(f)) }

// goTool runs the go command with variables added and returns what it prints.
func goTool(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, said.String())
	}
	return string(out)
}
