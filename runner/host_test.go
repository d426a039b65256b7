package runner

import (
	"encoding/json"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/plan"
)

// pythonSays runs a Python expression over words and returns its list.
func pythonSays(t *testing.T, expr string, words any) []string {
	t.Helper()
	needPython(t)
	in, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("python3", "-I", "-c", "import json,platform,shlex,sys\nwords=json.loads(sys.argv[1])\nprint(json.dumps("+expr+"))", string(in)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestPlatformIsPythons(t *testing.T) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	if got, want := platform(&uts, libc()), pythonSays(t, "[platform.platform()]", nil)[0]; got != want {
		t.Errorf("platform = %s, want Python's %s", got, want)
	}
}

func TestShellJoinIsPythons(t *testing.T) {
	words := []string{"", "plain", "a b", "it's", "/tmp/x-1_2.txt", "a=b,c:d@e%f+g", "$HOME", "é", "*"}
	if got, want := (&plan.Command{Argv: words}).Text(), pythonSays(t, "[shlex.join(words)]", words)[0]; got != want {
		t.Errorf("Text() = %s, want Python's %s", got, want)
	}
}
