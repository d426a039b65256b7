package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/dockertest"
)

// BenchmarkProxyStart measures a slot's proxy from its start to its first answer,
// and the memory it then has. Budget: 200 ms, 32 MiB.
func BenchmarkProxyStart(b *testing.B) {
	kbnode := dockertest.Program(b, "kbnode", ".")
	dir, err := os.MkdirTemp("", "kbp-") // short: a socket lies in it
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	config := filepath.Join(dir, "etc", "kbnode", "slots.yml")
	err = os.MkdirAll(filepath.Dir(config), 0o755)
	if err == nil {
		err = os.WriteFile(config, []byte(`version: 1
node: n
vendor: v
program: /usr/bin/kbnode
agent: {path: /usr/bin/buildkite-agent, version: 3.138.0}
docker: {socket: /nonexistent}
slots: [{name: gpu0, user: nobody, job_user: daemon, queue: q, tags: [], gpu_type: X, platform: docker, cpus: "0", memory_bytes: 1, slice_bytes: 1, pids: 1, slice_pids: 1, timeout: 1m, health_port: 1}]
`), 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	var memory float64
	for b.Loop() {
		start := exec.Command(kbnode, "proxy", "--slot", "gpu0", "--root", dir, "--socket", socket)
		if err := start.Start(); err != nil {
			b.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); ; {
			if _, err := os.Stat(socket); err == nil {
				break
			}
			if time.Now().After(deadline) {
				b.Fatal("the proxy does not listen")
			}
			time.Sleep(time.Millisecond)
		}
		memory = max(memory, residentMiB(b, start.Process.Pid))
		_ = start.Process.Kill()
		_ = start.Wait()
		os.Remove(socket)
	}
	b.ReportMetric(memory, "MiB")
}

func residentMiB(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}
