package secret

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo terminal: what is written to its first end is typed
// at the second, and the first shows what the second's echo does.
func terminal(t *testing.T) (us, program *os.File) {
	t.Helper()
	us, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminal: %v", err)
	}
	t.Cleanup(func() { us.Close() })
	if err := unix.IoctlSetPointerInt(int(us.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(us.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminal: %v", err)
	}
	t.Cleanup(func() { program.Close() })
	return us, program
}

// A value that is typed is asked for twice and never shown.
func TestTypedValues(t *testing.T) {
	for _, tt := range []struct {
		what   string
		typed  []string
		status int
		says   string
	}{
		{"the same twice", []string{"kbcanary-typed", "kbcanary-typed"}, 0, "TYPED added"},
		{"two values", []string{"kbcanary-typed", "kbcanary-other"}, 2, "got two different ones"},
		{"nothing", []string{""}, 2, "got nothing"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			us, theirs := terminal(t)
			dir := t.TempDir()
			run := func(args ...string) *exec.Cmd {
				cmd := exec.Command("kbgen", append([]string{"secret"}, args...)...) // this test, which testscript.Main has put on PATH under the program's name
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "GORACE=atexit_sleep_ms=0")
				return cmd
			}
			recipients, err := run("keygen", "--kind", "x25519", "--out", "key").Output()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "recipients"), recipients, 0o600); err != nil {
				t.Fatal(err)
			}

			cmd := run("encrypt", "TYPED", "--recipients", "recipients", "--store", "typed.kb.yaml", "--org", "0190aaaa-0000-4000-8000-000000000001", "--pipeline", "0190aaaa-0000-4000-8000-000000000002")
			cmd.Stdin = theirs
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			said := bufio.NewReader(stderr)
			for _, value := range tt.typed { // each prompt ends so; the echo is off when it stands there, or will be before the line is read
				if _, err := said.ReadString(':'); err != nil {
					t.Fatal(err)
				}
				waitForSilence(t, theirs)
				io.WriteString(us, value+"\n")
			}
			rest, _ := io.ReadAll(said)
			cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != tt.status || !strings.Contains(string(rest), tt.says) || strings.Contains(string(rest), "kbcanary") {
				t.Errorf("exit status %d and %q, want %d and %q", got, rest, tt.status, tt.says)
			}
			theirs.Close()
			shown, _ := io.ReadAll(us) // ends with EIO when the other end is closed
			if bytes.Contains(shown, []byte("kbcanary")) {
				t.Errorf("the terminal shows %q", shown)
			}
			if tt.status != 0 {
				return
			}
			opened, err := run("decrypt", "typed.kb.yaml", "--name", "TYPED", "--key", "key").Output()
			if err != nil || string(opened) != "kbcanary-typed" {
				t.Errorf("opened: %q, %v", opened, err)
			}
		})
	}
}

// waitForSilence returns when the program has switched the echo off.
func waitForSilence(t *testing.T, terminal *os.File) {
	t.Helper()
	for {
		state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		if state.Lflag&unix.ECHO == 0 {
			return
		}
	}
}
