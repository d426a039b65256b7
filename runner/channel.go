package runner

import (
	_ "embed"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/plan"
)

//go:embed harness.py
var startHarness string

// args is what is executed: argv, or for a harness in Python the program that
// starts it. The result names argv either way.
func args(c *plan.Command) []string {
	if !c.Harness {
		return c.Argv
	}
	return append([]string{c.Argv[0], "-c", startHarness}, c.Argv[1:]...)
}

// environ is the command's environment with its seed, unless harness.py reads
// that from the channel.
func environ(c *plan.Command) []string {
	if c.Seed == nil || c.Harness {
		return c.Environ
	}
	return append(c.Environ[:len(c.Environ):len(c.Environ)], "POPCORN_SEED="+strconv.FormatInt(*c.Seed, 10))
}

// reportChannel returns the two ends of a report's channel: r is read here, w
// is the child's POPCORN_FD. The seed for harness.py already waits in
// w, to be read to its end; it is in no file, argument or environment.
//
// It is a pair of sockets and not a pipe. Any process of the same user can open
// a pipe a second time through /proc/<pid>/fd, to write to it or to take away
// what the harness wrote. A socket cannot be opened like that. A harness that
// writes to a descriptor sees no difference.
func reportChannel(c *plan.Command) (r, w *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	// Only this end: it has deadlines. The other blocks, as harnesses expect.
	err = unix.SetNonblock(fds[0], true)
	if err == nil && c.Harness && c.Seed != nil {
		_, err = unix.Write(fds[0], strconv.AppendInt(nil, *c.Seed, 10))
	}
	if err == nil {
		err = unix.Shutdown(fds[0], unix.SHUT_WR)
	}
	if err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "report"), os.NewFile(uintptr(fds[1]), "POPCORN_FD"), nil
}
