package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner"
)

// environFD names the descriptor that holds the real environment after the
// re-execution.
const environFD = "KBRUN_ENVIRON_FD"

// environ is the environment as it was before it was hidden.
type environ []string

func (e environ) list() []string { return slices.Clone(e) }

func (e environ) lookup(name string) (string, bool) {
	for _, pair := range slices.Backward(e) {
		if v, ok := strings.CutPrefix(pair, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// hideEnviron takes payload and tokens out of /proc/<pid>/environ, which shows
// the environment a program was started with and which a submission of the
// same user can read: kbrun executes itself anew with what a submission may
// see, and receives the rest through an anonymous file that it closes at once.
// Only evaluate runs foreign code, and doctor tries what would hold for it.
func hideEnviron(args []string) (environ, error) {
	if fd, ok := os.LookupEnv(environFD); ok {
		return takeEnviron(fd)
	}
	if len(args) < 2 || args[1] != "evaluate" && args[1] != "doctor" {
		return os.Environ(), nil
	}
	fd, err := unix.MemfdCreate("environ", 0) // without CLOEXEC: it outlives the exec
	if err != nil {
		return nil, fmt.Errorf("hiding the environment: %w", err)
	}
	f := os.NewFile(uintptr(fd), "environ")
	if _, err := io.WriteString(f, strings.Join(os.Environ(), "\x00")); err != nil {
		return nil, fmt.Errorf("hiding the environment: %w", err)
	}
	clean := append(runner.Environ(os.Environ()), environFD+"="+strconv.Itoa(fd))
	err = syscall.Exec("/proc/self/exe", args, clean)
	return nil, fmt.Errorf("hiding the environment: executing kbrun again: %w", err)
}

func takeEnviron(number string) (environ, error) {
	fd, err := strconv.Atoi(number)
	if err != nil || fd <= 2 {
		return nil, fmt.Errorf("%s: got %q, want what kbrun itself set", environFD, number)
	}
	// Nobody but root may look into this process from now on.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("closing this process to others: %w", err)
	}
	f := os.NewFile(uintptr(fd), "environ")
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<32))
	if err != nil {
		return nil, fmt.Errorf("%s: reading descriptor %d: %w", environFD, fd, err)
	}
	var env environ
	for _, pair := range bytes.Split(data, []byte{0}) {
		env = append(env, string(pair))
	}
	return env, nil
}
