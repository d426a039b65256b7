package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema/text"
)

// systemPath is where kbnode looks for programs, whatever PATH it was started with.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// systemEnviron is the environment of the programs that kbnode starts: what a
// person or a job has set must not change what they say.
func systemEnviron() []string {
	return []string{"PATH=" + systemPath, "LC_ALL=C.UTF-8", "HOME=/root", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER="}
}

// look finds a program.
func look(name string) (path string, ok bool) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	for _, dir := range filepath.SplitList(systemPath) {
		if path := filepath.Join(dir, name); executable(path) {
			return path, true
		}
	}
	return "", false
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// runProgram runs a program of the system and returns what it printed. The error
// carries the last line of its standard error.
func runProgram(ctx context.Context, name string, args ...string) ([]byte, error) {
	path, ok := look(name)
	if !ok {
		return nil, fmt.Errorf("no %s on %s", name, systemPath)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = systemEnviron()
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		said := text.Line(lines[len(lines)-1], 300)
		if said == "" {
			said = err.Error()
		}
		return out.Bytes(), fmt.Errorf("%s: %s", filepath.Base(name), said)
	}
	return out.Bytes(), nil
}

// account looks a user up.
func account(name string) (doctor.User, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return doctor.User{}, err
	}
	found := doctor.User{}
	if found.UID, err = strconv.Atoi(u.Uid); err != nil {
		return found, err
	}
	if found.GID, err = strconv.Atoi(u.Gid); err != nil {
		return found, err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return found, err
	}
	for _, id := range ids {
		if g, err := user.LookupGroupId(id); err == nil {
			found.Groups = append(found.Groups, g.Name)
		}
	}
	return found, nil
}

// get asks a web address, for a few seconds at most.
func get(ctx context.Context, url string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, body, err
}

// devices is how drivers are asked here.
func devices() device.Machine {
	m := device.Machine{Root: "/", Environ: systemEnviron(), Limit: 30 * time.Second}
	if path, ok := look("kbrun-nvml"); ok {
		m.Probe = []string{path, "device-probe"}
	}
	if path, ok := look("nvidia-smi"); ok {
		m.SMI = path
	}
	return m
}

// inside reports whether this process is in the slot's slice.
func inside(slot *node.Slot) bool {
	body, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(body)) {
		_, path, _ := strings.Cut(strings.TrimSpace(line), "::")
		if slices.Contains(strings.Split(path, "/"), slot.Slice()) {
			return true
		}
	}
	return false
}
