package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// Limits bound a sandbox. Zero means the value of orDefault.
type Limits struct {
	Processes int   // with threads, in the whole sandbox
	OpenFiles int   // per process
	FileSize  int64 // bytes, each file
	Memory    int64 // bytes, in the whole sandbox, tmpfs included
}

// orDefault is generous: it stops a bomb, not an honest program with thousands of
// threads.
func (l Limits) orDefault() Limits {
	return Limits{
		Processes: cmp.Or(l.Processes, 4096), OpenFiles: cmp.Or(l.OpenFiles, 16384),
		FileSize: cmp.Or(l.FileSize, 16<<30), Memory: cmp.Or(l.Memory, totalMemory()/10*9),
	}
}

func totalMemory() int64 {
	var info unix.Sysinfo_t
	unix.Sysinfo(&info) // cannot fail with a valid pointer
	return int64(info.Totalram) * int64(info.Unit)
}

// Options describe the sandboxes of one job.
type Options struct {
	// Dir is an existing directory of the caller's. A sandbox keeps its mount
	// point and small files there. The caller removes it.
	Dir string

	// Environ is the machine's environment. It tells where programs and
	// libraries lie (PATH, LD_LIBRARY_PATH, …), and reaches no process.
	Environ []string

	// Read lists further files and directories that may be read, by absolute
	// paths; what does not exist is left out. Hide lists what may not be read
	// although it lies below a readable directory.
	Read, Hide []string

	// TCP: the programs need it to meet each other. A sandbox of namespaces has
	// a loopback device of its own in any case, and fails without it then; one
	// without a network of its own keeps TCP shut unless it is needed.
	TCP bool

	Limits Limits

	// Judge: what runs is not the submission but its judge, as another user of
	// its own.
	Judge bool

	// Minimum is the schema.Sandbox level without which nothing is run.
	Minimum string
}

// Directories is the part of the file system that a process may write, under
// the same paths inside of the sandbox and outside.
type Directories struct {
	Dir string // holds the others; readable; in a directory of the caller's own

	// Work holds the caller's files. The submission may read them; it cannot
	// replace them where it runs as a user of its own. Home and Temp are the
	// submission's.
	Work, Home, Temp string
}

// A Sandbox starts processes, one at a time. Its methods are for one goroutine.
type Sandbox struct {
	o        Options
	id       identity
	untried  []string // means, strongest first; the first one works as far as is known
	why      []string // what became of the stronger ones
	mounts   []mount  // of every sandbox; made with the first plan
	group    *group
	spare    *Process // built, and without a program yet
	report   *schema.Sandbox
	survived string
}

// A WeakError says that the machine cannot build a sandbox of the level needed.
type WeakError struct {
	Minimum string
	Best    *schema.Sandbox // nil when no sandbox could be built at all
	Why     []string        // what became of each means
}

func (e *WeakError) Error() string {
	text := fmt.Sprintf("the machine cannot shut a submission in: want a sandbox of level %q", e.Minimum)
	if e.Best != nil {
		text += fmt.Sprintf(", got %q", e.Best.Level)
		for _, m := range e.Best.Missing {
			text += "; " + m.Name + ": " + m.Why
		}
	}
	if len(e.Why) > 0 {
		text += " (" + strings.Join(e.Why, "; ") + ")"
	}
	return text
}

// Open looks at what the machine offers. It starts nothing yet. No descriptor
// that this process has by now reaches a program that is started later, but for
// those handed to it.
//
// Errors: an unknown Minimum, a Dir that cannot be written, a path of Read that
// is relative or would open too much.
func Open(o Options) (*Sandbox, error) {
	if len(os.Args) > 0 && os.Args[0] == initName { // Main was not called: it would start itself for ever
		return nil, errors.New("this program does not call sandbox.Main first")
	}
	if err := closeInherited(3); err != nil {
		return nil, fmt.Errorf("keeping open files from a submission: %w", err)
	}
	if o.Minimum == "" {
		o.Minimum = schema.SandboxPartial
	}
	if !schema.NewSandbox("", nil).AtLeast(o.Minimum) {
		return nil, fmt.Errorf("sandbox level: got %q, want one of %q", o.Minimum, schema.SandboxLevels())
	}
	for _, path := range o.Read {
		real := filepath.Clean(path)
		if followed, err := filepath.EvalSymlinks(path); err == nil {
			real = followed
		}
		if !filepath.IsAbs(path) || real == "/" || below(real, "/proc") || below(real, "/dev") {
			return nil, fmt.Errorf("what a submission may read: got %q, want an absolute path other than / and outside of /proc and /dev", path)
		}
	}
	o.Limits = o.Limits.orDefault()
	s := &Sandbox{o: o, id: whoami(o.Judge), untried: candidates()}
	if err := s.files(); err != nil {
		return nil, fmt.Errorf("preparing the sandbox: %w", err)
	}
	s.group = newGroup(o.Limits)
	return s, nil
}

// candidates lists the means worth trying. Whether the kernel lets them be is
// seen by trying: its settings are too many to foretell.
func candidates() []string {
	switch {
	case os.Geteuid() != 0:
		return []string{schema.MeansUserNamespace, schema.MeansProcess}
	case capable(unix.CAP_SYS_ADMIN) && canDrop():
		return []string{schema.MeansNamespaces, schema.MeansProcess}
	}
	return []string{schema.MeansProcess}
}

// Prepare gives the submission the directories that it must own, and closes the
// others to it.
func (s *Sandbox) Prepare(p Directories) error {
	if !s.id.Own {
		return nil
	}
	// The directory above cannot be listed, only passed through. Sticky: others
	// may add files, and replace only their own.
	err := errors.Join(os.Chmod(filepath.Dir(p.Dir), 0o711), os.Chmod(p.Dir, 0o755), os.Chmod(p.Work, 0o777|os.ModeSticky))
	for _, dir := range []string{p.Home, p.Temp} {
		err = errors.Join(err, os.Chown(dir, s.id.UID, s.id.GID))
	}
	if err != nil {
		return fmt.Errorf("handing the directories over: %w", err)
	}
	return nil
}

// Give makes the user that runs in the sandbox the owner of a file or directory
// of the caller's, with these permissions.
func (s *Sandbox) Give(path string, mode os.FileMode) error {
	err := os.Chmod(path, mode)
	if s.id.Own {
		err = errors.Join(err, os.Chown(path, s.id.UID, s.id.GID))
	}
	if err != nil {
		return fmt.Errorf("handing %s over: %w", filepath.Base(path), err)
	}
	return nil
}

// An Attempt is one means, tried with nothing to run.
type Attempt struct {
	Means   string          `json:"means"`
	Sandbox *schema.Sandbox `json:"sandbox,omitempty"` // nil when the machine refuses it
	Refused string          `json:"refused,omitempty"` // why it does
}

// Probe tries every means that makes sense for this user, strongest first.
func (s *Sandbox) Probe() []Attempt {
	var list []Attempt
	for _, means := range candidates() {
		a := Attempt{Means: means}
		_, got, err := s.try(means, Command{})
		if a.Sandbox = got; err != nil {
			a.Refused = err.Error()
		}
		list = append(list, a)
	}
	return list
}

// Report returns what every process so far had; nil when there was none.
func (s *Sandbox) Report() *schema.Sandbox {
	if s.report == nil || s.survived == "" {
		return s.report
	}
	return s.report.Join(schema.NewSandbox(s.report.Means, map[string]string{schema.GuardSurvivors: s.survived}))
}

// Survived notes that something of a submission could not be removed.
func (s *Sandbox) Survived(what error) { s.survived = what.Error() }

// Close removes what the sandboxes left in shared places, and a sandbox that
// was made [Sandbox.Ready] for nothing. No process of the others may be alive.
func (s *Sandbox) Close() error {
	if s.spare != nil {
		s.spare.abandon()
		s.spare = nil
	}
	s.Sweep()
	return s.group.remove()
}

// Sweep removes what programs that have ended left in places that the sandbox
// shares with the machine, as far as a user of its own tells them apart.
func (s *Sandbox) Sweep() {
	if s.report == nil || s.report.Means != schema.MeansProcess || !s.id.Own {
		return
	}
	sweepShm(s.id.UID)
	if err := sweepIPC(s.id.UID); err != nil {
		s.Survived(err)
	}
}

// sweepShm removes what a sandbox without a /dev/shm of its own put there. That
// can be told by an identity that no other job has; under the runner's own,
// files there may belong to anybody's programs and stay. A container takes its
// /dev/shm with it.
func sweepShm(uid int) {
	entries, _ := os.ReadDir("/dev/shm")
	for _, e := range entries {
		var st unix.Stat_t
		path := "/dev/shm/" + e.Name()
		if unix.Lstat(path, &st) == nil && int(st.Uid) == uid {
			os.RemoveAll(path)
		}
	}
}
