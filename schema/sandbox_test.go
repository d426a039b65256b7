package schema

import (
	"slices"
	"testing"
)

func TestSandboxLevel(t *testing.T) {
	for _, tt := range []struct {
		missing []string
		want    string
	}{
		{nil, SandboxFull},
		{[]string{GuardUser}, SandboxFull},
		{[]string{GuardNetwork}, SandboxPartial},
		{[]string{GuardSecrets}, SandboxNone},
		{[]string{GuardMemory, GuardSurvivors, GuardFiles}, SandboxNone},
	} {
		why := map[string]string{}
		for _, name := range tt.missing {
			why[name] = "x"
		}
		s := NewSandbox(MeansProcess, why)
		if s.Level != tt.want || len(s.Held)+len(s.Missing) != len(Guards()) || len(s.Missing) != len(tt.missing) {
			t.Errorf("NewSandbox without %q = %+v, want level %s", tt.missing, s, tt.want)
		}
		for _, level := range SandboxLevels() {
			want := slices.Index(SandboxLevels(), level) <= slices.Index(SandboxLevels(), tt.want)
			if s.AtLeast(level) != want {
				t.Errorf("without %q: AtLeast(%s) = %v", tt.missing, level, !want)
			}
		}
		if s.AtLeast("most") {
			t.Error("AtLeast of an unknown level")
		}
	}
}

func TestSandboxJoin(t *testing.T) {
	a := NewSandbox(MeansNamespaces, map[string]string{GuardMemory: "no cgroup"})
	b := NewSandbox(MeansProcess, map[string]string{GuardNetwork: "x", GuardSecrets: "y"})
	got := a.Join(b)
	if got.Level != SandboxNone || got.Means != MeansProcess || len(got.Missing) != 3 {
		t.Errorf("Join = %+v", got)
	}
	if a.Join(nil) != a || (*Sandbox)(nil).Join(a) != a {
		t.Error("Join with nil is not the other")
	}
}
