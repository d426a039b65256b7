package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// nodeCommands run on a vendor's machine; all others are tools.
var nodeCommands = []string{"kbrun", "kbrun-nvml", "kbnode"}

// commands lists what stands in cmd.
func (r *release) commands() ([]string, error) {
	mains, err := filepath.Glob(filepath.Join(r.root, "cmd", "kb*", "main.go"))
	if err != nil || len(mains) == 0 {
		return nil, errors.Join(err, fmt.Errorf("no commands in %s", filepath.Join(r.root, "cmd")))
	}
	var names []string
	for _, path := range mains {
		names = append(names, filepath.Base(filepath.Dir(path)))
	}
	return names, nil
}

// readCommit sets commit and date. It refuses changes that no commit has, because
// the provenance names the commit.
func (r *release) readCommit() error {
	out, err := r.command(nil, "git", "log", "-1", "--format=%ct %H").Output()
	if err != nil {
		return fmt.Errorf("asking git for the commit: %w", err)
	}
	var seconds int64
	if _, err := fmt.Sscanf(string(out), "%d %s", &seconds, &r.commit); err != nil {
		return fmt.Errorf("asking git for the commit: got %q: %w", out, err)
	}
	r.date = time.Unix(seconds, 0).UTC()
	changed, err := r.command(nil, "git", "status", "--porcelain", "--untracked-files=no").Output()
	if err == nil && len(changed) > 0 {
		err = fmt.Errorf("got changed files, want a release of commit %.12s alone:\n%s", r.commit, changed)
	}
	return err
}

func (r *release) command(env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// build compiles every command for an architecture.
func (r *release) build(dir, arch string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	names, err := r.commands()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := r.compile(filepath.Join(dir, name), name, arch, "", ""); err != nil {
			return err
		}
	}
	return r.buildNVML(dir, arch)
}

// buildEnvironment is what every build has beside its architecture.
var buildEnvironment = []string{"GOOS=linux", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOWORK=off"}

// buildFlags are those of every build; the linker's stand last.
func (r *release) buildFlags() []string {
	return []string{"-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X github.com/gpu-mode/kbgen/cmd/internal/cli.version=" + r.version}
}

// compile builds one command: static, or linked with cc's C library.
func (r *release) compile(path, name, arch, cc, extra string) error {
	env := slices.Concat(buildEnvironment, []string{"GOARCH=" + arch, "CGO_ENABLED=0"})
	if cc != "" {
		env = append(env, "CGO_ENABLED=1", "CC="+cc, "CGO_CFLAGS=-O2 -g0 -Wno-deprecated-declarations", "CGO_LDFLAGS=")
	}
	args := append([]string{"build"}, r.buildFlags()...)
	args[len(args)-1] += extra
	cmd := r.command(env, "go", append(args, "-o", path, "./cmd/"+name)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s for %s: %w\n%s", name, arch, err, out)
	}
	return nil
}

// buildNVML builds kbrun with NVML where there is a C compiler for arch, and
// says what it is linked with.
func (r *release) buildNVML(dir, arch string) error {
	cc := "gcc"
	if arch != runtime.GOARCH {
		cc = map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}[arch]
	}
	if _, err := exec.LookPath(cc); err != nil {
		fmt.Fprintf(r.log, "kbrun-nvml for %s is left out: there is no %s here\n", arch, cc)
		return nil
	}
	path := filepath.Join(dir, "kbrun-nvml")
	if err := r.compile(path, "kbrun", arch, cc, " -extldflags=-Wl,--build-id=none"); err != nil {
		return err
	}
	needs, err := libcOf(path)
	if err != nil {
		return err
	}
	note := fmt.Sprintf("kbrun-nvml for %s: built on %s with %s, needs glibc %s or newer\n", arch, distribution(), firstLine(cc, "--version"), needs)
	fmt.Fprint(r.log, note)
	return os.WriteFile(filepath.Join(dir, "kbrun-nvml.txt"), []byte(note), 0o644)
}

// libcOf returns the oldest C library that a program can be loaded with, "2.34".
func libcOf(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	newest, found := []int{0, 0}, false
	for _, s := range symbols {
		version, ok := strings.CutPrefix(s.Version, "GLIBC_")
		if !ok {
			continue
		}
		var parts []int
		for _, part := range strings.Split(version, ".") {
			n, err := strconv.Atoi(part)
			if err != nil {
				break // GLIBC_PRIVATE
			}
			parts = append(parts, n)
		}
		if len(parts) >= 2 && slices.Compare(parts, newest) > 0 {
			newest, found = parts, true
		}
	}
	if !found {
		return "", fmt.Errorf("%s: needs no versioned C library, want glibc", path)
	}
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(newest)), "."), "[]"), nil
}

// distribution is what this machine runs, "Debian GNU/Linux 12 (bookworm)".
func distribution() string {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "an unknown distribution"
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(strings.TrimSpace(name), `"`)
		}
	}
	return "an unknown distribution"
}

func firstLine(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return name
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	return string(line)
}

// describe makes what goes with the binaries: completions and man pages,
// printed by the programs themselves.
func (r *release) describe(dir, bin string) error {
	names, err := r.commands()
	if err != nil {
		return err
	}
	for _, name := range names {
		for path, args := range map[string][]string{
			"man/" + name + ".1":            {"man"},
			"completions/" + name + ".bash": {"completion", "bash"},
			"completions/_" + name:          {"completion", "zsh"},
			"completions/" + name + ".fish": {"completion", "fish"},
		} {
			out, err := r.command(nil, filepath.Join(bin, name), args...).Output()
			if err != nil || len(out) == 0 {
				return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), errors.Join(err, errors.New("it printed too little")))
			}
			path = filepath.Join(dir, filepath.FromSlash(path))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, out, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
