package pipelines

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script runs a kind's command as its step does, in a directory of its own,
// with these programs on PATH before the system's.
func script(t *testing.T, text string, programs map[string]string, env ...string) (status int, said string) {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	for name, body := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-e", "-c", text)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin", "KERNELBOT_GPU=X_BK", "KERNELBOT_QUEUE=x"}, env...)
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestSmokeScript(t *testing.T) {
	kbrun := map[string]string{"kbrun": "echo kbrun 1", "nvidia-smi": `echo "GPU 0: H100 (UUID: GPU-x)"`}
	for _, tt := range []struct {
		name     string
		programs map[string]string
		env      []string
		status   int
		want     string
	}{
		{"a host without a GPU", kbrun, []string{"KERNELBOT_VENDOR=none", "KERNELBOT_GPUS=0"}, 0, "devices: 0, want 0"},
		{"one GPU", kbrun, []string{"KERNELBOT_VENDOR=nvidia", "KERNELBOT_GPUS=1"}, 0, "GPU 0: H100"},
		{"a GPU too few", kbrun, []string{"KERNELBOT_VENDOR=nvidia", "KERNELBOT_GPUS=8"}, 1, "devices: 1, want 8"},
		{"no driver", map[string]string{"kbrun": "echo kbrun 1", "nvidia-smi": "exit 9"}, []string{"KERNELBOT_VENDOR=nvidia", "KERNELBOT_GPUS=1"}, 1, "devices: 0, want 1"},
		{"no runner", nil, []string{"KERNELBOT_VENDOR=none", "KERNELBOT_GPUS=0"}, 1, "kbrun is not on PATH"},
		{"a vendor nobody knows", kbrun, []string{"KERNELBOT_VENDOR=intel", "KERNELBOT_GPUS=1"}, 1, "vendor intel is unknown here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, said := script(t, smokeScript, tt.programs, tt.env...)
			if status != tt.status || !strings.Contains(said, tt.want) {
				t.Errorf("exit status %d, want %d; said\n%s\nwant %q in it", status, tt.status, said, tt.want)
			}
		})
	}
}

// A place where nothing is isolated fails, and says every fault at once.
func TestIsolationScriptFindsFaults(t *testing.T) {
	env := []string{"KERNELBOT_VENDOR=nvidia", "KERNELBOT_GPUS=64", "KERNELBOT_CPUS=1000", "KERNELBOT_MEMORY_GIB=1",
		"BUILDKITE_AGENT_ACCESS_TOKEN=not-a-token", "BUILDKITE_AGENT_JOB_API_SOCKET=/x"}
	status, said := script(t, isolationScript, map[string]string{"buildkite-agent": "exit 1"}, env...)
	if status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	for _, want := range []string{
		"FAIL sees ", "FAIL a token of the agent is in the environment", "FAIL the Job API's socket is in the environment",
		"FAIL the agent's binary is in the container", "FAIL may gain privileges",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("said\n%s\nwant %q in it", said, want)
		}
	}
	if strings.Contains(said, "not-a-token") {
		t.Errorf("the script prints the token:\n%s", said)
	}
}

// Scripts keep within what every shell and the generator's escaping take.
func TestScriptsArePlain(t *testing.T) {
	for name, text := range map[string]string{"smoke.sh": smokeScript, "isolation.sh": isolationScript} {
		for i, line := range strings.Split(text, "\n") {
			if strings.Contains(line, `\$`) || strings.HasSuffix(line, " ") || strings.Contains(line, "\t") {
				t.Errorf("%s:%d: %q: no backslash before a dollar sign, no tab, no space at the end", name, i+1, line)
			}
		}
	}
}
