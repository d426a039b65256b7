package sandbox

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func TestReadProcess(t *testing.T) {
	p, ok := readProcess(os.Getpid(), make([]byte, 512))
	if !ok || p.Parent != os.Getppid() || p.Name == "" {
		t.Errorf("readProcess(own) = %+v, %v; parent is %d", p, ok, os.Getppid())
	}
}

// A process whose first thread has ended looks dead, and its other threads run on.
func TestStateWithoutTheFirstThread(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("NOT RUN: no python3")
	}
	cmd := exec.Command(python, "-c", `
import ctypes, platform, threading, time
def run():
    print("running", flush=True)
    time.sleep(600)
threading.Thread(target=run, daemon=True).start()
ctypes.CDLL(None).syscall(93 if platform.machine() == "aarch64" else 60, 0)
`)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("python3 printed %q, %v", line, err)
	}
	pid := cmd.Process.Pid
	becomes := func(want byte) {
		t.Helper()
		for range 500 {
			first, _ := readStat(fmt.Sprintf("/proc/%[1]d/task/%[1]d", pid), make([]byte, 512))
			if first.State == 'Z' && StateOf(pid) == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("state %q, want %q", StateOf(pid), want)
	}
	becomes('S')
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	becomes('T')
	_ = cmd.Process.Kill()
	becomes('Z')
}
