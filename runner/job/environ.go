package job

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// Environ is the environment as it was before it was hidden.
type Environ []string

// List returns all of it.
func (e Environ) List() []string { return slices.Clone(e) }

// Lookup finds a variable.
func (e Environ) Lookup(name string) (string, bool) { return schema.LookupEnv(e, name) }

// HideEnviron takes payload and tokens out of /proc/<pid>/environ, which shows
// the environment a program was started with and which a submission of the
// same user can read, and closes this process to others. What this process
// starts inherits no more than what a submission may see. Only evaluate runs
// foreign code, and doctor tries what would hold for it.
//
// Error: it could not; nothing foreign may run then. The environment is
// returned all the same.
func HideEnviron(args, env []string) (Environ, error) {
	if len(args) < 2 || args[1] != "evaluate" && args[1] != "doctor" {
		return env, nil
	}
	if err := wipeEnviron(); err != nil {
		return env, fmt.Errorf("hiding the environment: %w", err)
	}
	os.Clearenv()
	for _, pair := range plan.Environ(env) {
		name, value, _ := strings.Cut(pair, "=")
		os.Setenv(name, value)
	}
	// Nobody but root may look into this process from now on.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return env, fmt.Errorf("closing this process to others: %w", err)
	}
	return env, nil
}

// wipeEnviron overwrites the memory that /proc/<pid>/environ shows. Go copied
// what stood there when the program began.
func wipeEnviron() error {
	start, end, err := environRange()
	if err != nil {
		return err
	}
	zeros := make([]byte, end-start)
	mem, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if errors.Is(err, os.ErrPermission) { // whoever may not read this program's file may not open that
		return wipeByCall(zeros, start)
	}
	if err != nil {
		return err
	}
	_, err = mem.WriteAt(zeros, start)
	return errors.Join(err, mem.Close())
}

// wipeByCall does it by a call that some containers forbid.
func wipeByCall(zeros []byte, start int64) error {
	if len(zeros) == 0 {
		return nil
	}
	here := unix.Iovec{Base: &zeros[0]}
	here.SetLen(len(zeros))
	n, err := unix.ProcessVMWritev(os.Getpid(), []unix.Iovec{here}, []unix.RemoteIovec{{Base: uintptr(start), Len: len(zeros)}}, 0)
	if err == nil && n < len(zeros) {
		err = fmt.Errorf("%d of %d bytes were written", n, len(zeros))
	}
	return err
}

// environRange reads where the environment lies: fields 50 and 51 of
// /proc/self/stat, of which the second, in parentheses, may hold spaces.
func environRange() (start, end int64, err error) {
	data, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const first = 3 // the number of fields[0]
	if len(fields) <= 51-first {
		return 0, 0, fmt.Errorf("/proc/self/stat: got %d fields, want 52", len(fields)+first-1)
	}
	from, err1 := strconv.ParseInt(fields[50-first], 10, 64)
	to, err2 := strconv.ParseInt(fields[51-first], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, fmt.Errorf("/proc/self/stat: %w", err)
	}
	if from <= 0 || to < from {
		return 0, 0, fmt.Errorf("/proc/self/stat: the environment lies from %#x to %#x", from, to)
	}
	return from, to, nil
}
