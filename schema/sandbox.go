package schema

import (
	"cmp"
	"slices"

	"github.com/gpu-mode/kbgen/schema/text"
)

// Levels of a sandbox, from weak to strong.
const (
	SandboxNone    = "none"    // less than partial
	SandboxPartial = "partial" // the guards that a verdict rests on
	SandboxFull    = "full"    // all of them but GuardUser, which then adds nothing
)

// SandboxLevels lists the levels from weak to strong.
func SandboxLevels() []string { return []string{SandboxNone, SandboxPartial, SandboxFull} }

// Means of a sandbox: what the machine let the runner build it from.
const (
	MeansNamespaces    = "namespaces"      // as root: namespaces and a user id of its own
	MeansUserNamespace = "user-namespaces" // as an ordinary user: the same within a user namespace
	MeansProcess       = "process"         // within one process: Landlock, limits
	MeansNothing       = "nothing"
)

// Names of guards.
const (
	GuardEnvironment = "environment"
	GuardSecrets     = "secrets"
	GuardPrivileges  = "privileges"
	GuardLimits      = "limits"
	GuardSurvivors   = "survivors"
	GuardSignals     = "signals"
	GuardProcesses   = "processes"
	GuardFiles       = "files"
	GuardDevices     = "devices"
	GuardNetwork     = "network"
	GuardMemory      = "memory"
	GuardUser        = "user"
)

// A Guard is one thing that a submission is kept from.
type Guard struct {
	Name  string
	Level string // the lowest level that needs it; "" when none does
	Text  string // what holds, one line for people
}

// Guards lists every guard there is.
func Guards() []Guard {
	return []Guard{
		{GuardEnvironment, SandboxPartial, "starts with allow-listed variables only"},
		{GuardSecrets, SandboxPartial, "cannot read the environment and memory of the runner and of what started it"},
		{GuardPrivileges, SandboxPartial, "has no privilege and cannot gain one"},
		{GuardLimits, SandboxPartial, "has limits on processes, open files and file size, and dumps no core"},
		{GuardSurvivors, SandboxPartial, "leaves no process and no temporary file behind"},
		{GuardSignals, SandboxFull, "cannot signal the runner and what started it"},
		{GuardProcesses, SandboxFull, "sees no process but its own"},
		{GuardFiles, SandboxFull, "sees the system's files read-only and its own directories, nothing else"},
		{GuardDevices, SandboxFull, "has no device but the GPUs and the harmless ones"},
		{GuardNetwork, SandboxFull, "has no network"},
		{GuardMemory, SandboxFull, "has a limit on the memory of all its processes together"},
		{GuardUser, "", "runs as a user of its own"},
	}
}

// A Sandbox says how far the submission of a run was kept apart: result.json's
// own key "sandbox". What every process of it had is held; the rest is missing.
type Sandbox struct {
	Level   string         `json:"level"` // one of SandboxLevels
	Means   string         `json:"means"` // one of the Means constants
	Held    []string       `json:"held"`  // names of guards, in their order
	Missing []MissingGuard `json:"missing"`
}

// A MissingGuard is a guard that could not be had, and why.
type MissingGuard struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// NewSandbox works the level out of what is missing, given as guard and reason.
func NewSandbox(means string, missing map[string]string) *Sandbox {
	s := &Sandbox{Level: SandboxFull, Means: means, Held: []string{}, Missing: []MissingGuard{}}
	for _, g := range Guards() {
		why, gone := missing[g.Name]
		if !gone {
			s.Held = append(s.Held, g.Name)
			continue
		}
		s.Missing = append(s.Missing, MissingGuard{g.Name, text.Storable(why)})
		switch g.Level {
		case SandboxPartial:
			s.Level = SandboxNone
		case SandboxFull:
			s.Level = weaker(s.Level, SandboxPartial)
		}
	}
	return s
}

// Join returns what holds of both; s or t may be nil.
func (s *Sandbox) Join(t *Sandbox) *Sandbox {
	if s == nil || t == nil {
		return cmp.Or(s, t)
	}
	missing := map[string]string{}
	for _, m := range slices.Concat(t.Missing, s.Missing) {
		missing[m.Name] = m.Why
	}
	means := s.Means
	if weaker(s.Level, t.Level) != s.Level {
		means = t.Means
	}
	return NewSandbox(means, missing)
}

// AtLeast reports whether the level is that strong; an unknown one is never reached.
func (s *Sandbox) AtLeast(level string) bool {
	want := slices.Index(SandboxLevels(), level)
	return want >= 0 && slices.Index(SandboxLevels(), s.Level) >= want
}

func weaker(a, b string) string {
	if slices.Index(SandboxLevels(), a) < slices.Index(SandboxLevels(), b) {
		return a
	}
	return b
}
