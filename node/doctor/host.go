package doctor

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/docker"
	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/runner/device"
)

// Host returns the machine that this process runs on.
func Host() Machine {
	return Machine{
		Root: "/", Run: system.Run, Engine: func(ctx context.Context, socket, path string, query url.Values, into any) error {
			return docker.New(socket).Do(ctx, http.MethodGet, path, query, nil, into)
		},
		Look: system.Look, User: system.LookupUser, Get: get, Device: devices(),
		Root0: os.Geteuid() == 0, Inside: inside, Owned: func(_ string, body []byte) (ours, unchanged bool) { return resource.Marked(body), resource.Owned(body) },
	}
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
	m := device.Machine{Root: "/", Environ: system.Environ(), Limit: 30 * time.Second}
	if path, ok := system.Look("kbrun-nvml"); ok {
		m.Probe = []string{path, "device-probe"}
	}
	if path, ok := system.Look("nvidia-smi"); ok {
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
