package apply

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/node/resource"
)

// Users by the system's own commands, in files below a directory.
func TestRealUsers(t *testing.T) {
	for _, name := range []string{"useradd", "userdel"} {
		if _, err := exec.LookPath(name); err != nil || os.Geteuid() != 0 {
			t.Skip("NOT RUN: it takes root and " + name)
		}
	}
	f := newFixture(t)
	f.machine.Users = &Useradd{Root: f.machine.Root}
	s := resource.Set{Users: []resource.User{{Name: "kbagent-gpu0", Home: "/var/lib/kbnode/slots/gpu0"}}}
	f.mustApply(t, &s)
	a, err := f.machine.accounts()
	if err != nil {
		t.Fatal(err)
	}
	passwd, err := os.ReadFile(f.machine.path("/etc/passwd"))
	if err != nil {
		t.Fatal(err)
	}
	user := fmt.Sprintf(":%d:%d::/var/lib/kbnode/slots/gpu0:", a.users["kbagent-gpu0"], a.groups["kbagent-gpu0"])
	if a.users["kbagent-gpu0"] == 0 || !strings.Contains(string(passwd), user) {
		t.Errorf("want %s in %s", user, passwd)
	}
	if did := f.mustApply(t, &s); len(did) > 0 {
		t.Errorf("a second time: %+v", did)
	}
	// A useradd that was killed may have left the group alone.
	if err := exec.Command("userdel", "--prefix", f.machine.Root, "--", "kbagent-gpu0").Run(); err != nil {
		t.Fatal(err)
	}
	f.mustApply(t, &s)
	f.mustUndo(t)
	for _, file := range []string{"passwd", "group"} {
		if content, err := os.ReadFile(filepath.Join(f.machine.Root, "etc", file)); err != nil || strings.Contains(string(content), "kbagent") {
			t.Errorf("/etc/%s: %v\n%s", file, err, content)
		}
	}
}
