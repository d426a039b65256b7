package doctor

import (
	"strings"
	"testing"
)

func TestVersionsBeforeAFixLackIt(t *testing.T) {
	for _, c := range []struct{ component, version, want string }{
		{"docker", "24.0.9", "25.0.6"}, {"docker", "25.0.6", ""}, {"docker", "26.0.2", "26.1.5"}, {"docker", "27.1.1", ""}, {"docker", "28.2.2", ""},
		{"containerd", "v1.7.28", "1.7.29"}, {"containerd", "1.7.24~ds1", "1.7.29"}, {"containerd", "2.1.5", ""}, {"containerd", "2.2.0-rc.1", "2.2.0"}, {"containerd", "2.3.0-rc.1", ""},
		{"runc", "1.1.5+ds1", "1.1.12 1.2.8"}, {"runc", "1.1.15", "1.2.8"}, {"runc", "1.2.8-0ubuntu1~24.04.1", ""}, {"runc", "1.3.2", "1.3.3"}, {"runc", "1.3.3", ""}, {"runc", "1.10.0", ""},
		{"toolkit", "1.16.1", "1.16.2 1.17.8"}, {"toolkit", "1.17.7", "1.17.8"}, {"toolkit", "1.18.0", ""},
		{"driver", "535.261.03", "535.274.02"}, {"driver", "550.163.01", "570.195.03"}, {"driver", "580.95.05", ""}, {"driver", "590.44.01", ""},
		{"kernel", "5.14.0-427.el9.x86_64", "5.15.149"}, {"kernel", "6.1.76-1", ""}, {"kernel", "6.7.2-arch1", "6.7.3"}, {"kernel", "6.8.0-31-generic", ""},
	} {
		v, ok := readVersion(c.version)
		if !ok {
			t.Errorf("readVersion(%q): not a version", c.version)
		}
		var got []string
		for _, a := range advisories {
			if least := a.fixFor(v); a.component == c.component && least != "" && (len(got) == 0 || got[len(got)-1] != least) {
				got = append(got, least)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s %s lacks %q, want %q", c.component, c.version, got, c.want)
		}
	}
	for _, s := range []string{"", "dev", "7"} {
		if v, ok := readVersion(s); ok {
			t.Errorf("readVersion(%q): %v, want none", s, v)
		}
	}
}

// Distributions add fixes without another version. The engine shows whose build it is
// by the version or by the commit.
func TestOldVersionOfADistributionIsAWarning(t *testing.T) {
	for part, want := range map[string]State{
		`"Version": "1.1.11", "Details": {"GitCommit": "v1.1.11-0-g4bccb38"}`:         Failure,
		`"Version": "1.1.5+ds1", "Details": {"GitCommit": "1.1.5+ds1-1+deb12u2"}`:     Warning,
		`"Version": "1.1.12-0ubuntu3.1", "Details": {"GitCommit": ""}`:                Warning,
		`"Version": "1.3.2", "Details": {"GitCommit": ""}`:                            Warning,
		`"Version": "1.4.0-rc.1", "Details": {"GitCommit": "v1.4.0-rc.1-0-g0123456"}`: Failure,
		`"Version": "1.3.3", "Details": {"GitCommit": "v1.3.3-0-gd842d771"}`:          OK,
		`"Version": "unknown", "Details": {"GitCommit": "v1.3.3-0-gd842d771"}`:        Skipped,
	} {
		w := healthy(t)
		w.engine["/version"] = `{"Components": [{"Name": "runc", ` + part + `}]}`
		if r := w.result("version-runc"); r.State != want {
			t.Errorf("%s: %s, %q; want %s", part, r.State, r.Text, want)
		}
	}
}

func TestEngineIsAskedOnceForItsVersions(t *testing.T) {
	for _, answers := range []bool{true, false} {
		w := healthy(t)
		if !answers {
			delete(w.engine, "/version")
		}
		w.examine(false)
		if w.asked["/version"] != 1 || w.asked["/info"] != 1 {
			t.Errorf("answers %v: asked for /version %d times and for /info %d times, want once each", answers, w.asked["/version"], w.asked["/info"])
		}
	}
}

// The name of Debian's kernel stays the same when a fix comes.
func TestVersionOfDebiansKernelIsThePackages(t *testing.T) {
	w := healthy(t)
	w.write("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
	w.write("/proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)\n")
	if r := w.result("version-kernel"); r.State != OK || r.Text != "Linux 6.1.76-1" {
		t.Errorf("got %s, %q; want Linux 6.1.76-1 in order", r.State, r.Text)
	}
}
