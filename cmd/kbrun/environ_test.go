package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

// What /proc shows of kbrun, while a submission runs, holds nothing that kbrun
// was told, whoever looks.
func TestEnvironmentIsWiped(t *testing.T) {
	p := &schema.Payload{
		Main: "eval.py", Lang: schema.LangPython, Mode: schema.ModeTest,
		Sources: schema.Files{{Name: "eval.py", Text: "import time\ntime.sleep(30)\n"}},
	}
	encoded, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: os.Args[0], Args: []string{"kbrun", "evaluate"}, Dir: t.TempDir()}
	cmd.Env = []string{
		"PATH=/usr/bin:/bin", "TMPDIR=" + t.TempDir(), "KERNELBOT_PAYLOAD=" + encoded, "KERNELBOT_RUN_ID=r1", "SOME_TOKEN=canary",
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Signal(os.Interrupt)
	begun := false
	for lines := bufio.NewScanner(stdout); !begun && lines.Scan(); {
		begun = strings.HasPrefix(lines.Text(), "--- Phase")
	}
	if !begun {
		t.Fatal("kbrun ended before a phase began")
	}
	shown, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid))
	if os.Getuid() != 0 && err == nil {
		t.Errorf("another process of the same user can read it")
	}
	if text := strings.Trim(string(shown), "\x00"); text != "" {
		t.Errorf("it shows %q", text)
	}
}
