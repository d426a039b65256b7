package runner

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/plan"
)

// pythonSays runs a Python expression over words and returns its list.
func pythonSays(t *testing.T, expr string, words any) []string {
	t.Helper()
	in, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(testenv.Python(t), "-I", "-c", "import json,platform,shlex,sys\nwords=json.loads(sys.argv[1])\nprint(json.dumps("+expr+"))", string(in)).Output()
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

func TestTorchVersion(t *testing.T) {
	const own = "from typing import Optional\n__all__ = ['__version__']\n__version__ = '2.5.1+cu124'\ndebug = False\n"
	for _, tt := range []struct {
		name   string
		files  map[string]string // "->": a link
		python string
		want   string
	}{
		{"pip", map[string]string{"bin/python3": "->bin/python3.12", "bin/python3.12": "", "lib/python3.12/site-packages/torch/version.py": own, "lib/python3.12/site-packages/torch-2.5.1.dist-info/METADATA": ""}, "bin/python3", "2.5.1+cu124"},
		{"pip, version.py unreadable", map[string]string{"bin/python3": "->bin/python3.12", "bin/python3.12": "", "lib/python3.12/site-packages/torch/version.py": "from x import y", "lib/python3.12/site-packages/torch-2.5.1.dist-info/METADATA": ""}, "bin/python3", "2.5.1"},
		{"a distribution's", map[string]string{"bin/python3": "->bin/python3.11", "bin/python3.11": "", "lib/python3/dist-packages/torch/version.py": "__version__ = '1.13.0a0'\n"}, "bin/python3", "1.13.0a0"},
		{"a distribution's egg-info", map[string]string{"bin/python3": "->bin/python3.11", "bin/python3.11": "", "lib/python3/dist-packages/torch/x": "", "lib/python3/dist-packages/torch-1.13.0a0+gitunknown.egg-info/PKG-INFO": ""}, "bin/python3", "1.13.0a0+gitunknown"},
		{"lib64", map[string]string{"bin/python3": "", "lib64/python3.13/site-packages/torch/version.py": "__version__: str = \"2.6.0\"\n"}, "bin/python3", "2.6.0"},
		{"another interpreter's", map[string]string{"bin/python3": "->bin/python3.12", "bin/python3.12": "", "lib/python3.11/site-packages/torch/version.py": own}, "bin/python3", ""},
		{"removed, with its record left", map[string]string{"bin/python3": "", "lib/python3.12/site-packages/torch-2.5.1.dist-info/METADATA": ""}, "bin/python3", ""},
		{"beside a closed environment", map[string]string{"bin/python3": "", "lib/python3.12/site-packages/torch/version.py": own, "venv/bin/python3": "->bin/python3", "venv/pyvenv.cfg": "include-system-site-packages = false\n"}, "venv/bin/python3", ""},
		{"beside an open environment", map[string]string{"bin/python3": "", "lib/python3.12/site-packages/torch/version.py": own, "venv/bin/python3": "->bin/python3", "venv/pyvenv.cfg": "home = x\ninclude-system-site-packages = true\n"}, "venv/bin/python3", "2.5.1+cu124"},
	} {
		root := t.TempDir()
		write := func(name, text string) {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			err := os.WriteFile(path, []byte(text), 0o755)
			if to, link := strings.CutPrefix(text, "->"); link {
				os.Remove(path)
				err = os.Symlink(filepath.Join(root, to), path)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range tt.files {
			write(name, text)
			if dir := filepath.Dir(name); filepath.Base(dir) == "torch" {
				write(filepath.Join(dir, "__init__.py"), "")
			}
		}
		if got := torchVersion([]string{"PATH=" + filepath.Join(root, filepath.Dir(tt.python))}); got != tt.want {
			t.Errorf("%s: torchVersion = %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The torch of this machine's own interpreter, where there is one: its version
// module is run, without torch around it.
func TestTorchVersionIsTorchs(t *testing.T) {
	const find = `import importlib.util, os, runpy; spec = importlib.util.find_spec("torch")
print(runpy.run_path(os.path.join(os.path.dirname(spec.origin), "version.py"))["__version__"] if spec and spec.origin else "")`
	out, err := exec.Command("/usr/bin/python3", "-I", "-c", find).Output()
	if err != nil {
		t.Skipf("/usr/bin/python3: %v", err)
	}
	if got, want := torchVersion([]string{"PATH=/usr/bin"}), strings.TrimSpace(string(out)); got != want {
		t.Errorf("torchVersion = %q, want %q", got, want)
	}
}
