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

// A node that the device cgroup lets through fails to open only because no driver
// is behind it (ENXIO); a denied one is not permitted (EPERM).
func TestIsolationScriptTellsDeniedFromUnanswered(t *testing.T) {
	for _, tt := range []struct {
		name, error, want string
		fails             bool
	}{
		{"let through, no driver", "No such device or address", "FAIL opens a device node that it made, for /dev/nvidia", true},
		{"opened", "", "FAIL opens a device node that it made, for /dev/nvidia", true},
		{"denied by the control group", "Operation not permitted", "FAIL opens a device node", false},
		{"denied by the file system", "Permission denied", "FAIL opens a device node", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			programs := map[string]string{
				"mknod": "exit 0",
				"head":  `case $3 in /tmp/gpu*) [ -z "` + tt.error + `" ] || { echo "head: $3: ` + tt.error + `" >&2; exit 1; } ;; *) exec /usr/bin/head "$@" ;; esac`,
			}
			_, said := script(t, isolationScript, programs, "KERNELBOT_VENDOR=nvidia", "KERNELBOT_GPUS=1", "KERNELBOT_CPUS=1", "KERNELBOT_MEMORY_GIB=1")
			if strings.Contains(said, tt.want) != tt.fails {
				t.Errorf("%q: %v, want %v in\n%s", tt.want, !tt.fails, tt.fails, said)
			}
		})
	}
}

// A machine set up by kbnode may give more than the row promises, and less than
// all of it.
func TestIsolationScriptKnowsAShareOfTheMachine(t *testing.T) {
	for _, tt := range []struct {
		name, nproc, all, want string
	}{
		{"more than promised", "16", "130", "ok   16 of 130 cores"},
		{"as promised", "8", "130", "ok   8 of 130 cores"},
		{"the whole machine", "130", "130", "FAIL 130 cores, all of the machine, want 8"},
		{"less than promised", "4", "130", "FAIL 4 cores, want 8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			programs := map[string]string{
				"nproc": "echo " + tt.nproc, "cut": "exit 1",
				"grep": `case $3 in /proc/cpuinfo) echo ` + tt.all + ` ;; *) exec /bin/grep "$@" ;; esac`,
			}
			_, said := script(t, isolationScript, programs, "KERNELBOT_VENDOR=none", "KERNELBOT_GPUS=0", "KERNELBOT_CPUS=8", "KERNELBOT_MEMORY_GIB=1")
			if !strings.Contains(said, tt.want+"\n") {
				t.Errorf("no %q in\n%s", tt.want, said)
			}
		})
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
