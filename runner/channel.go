package runner

import (
	_ "embed"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

//go:embed harness.py
var harness string

// args is what is executed: argv, or for a harness in Python the program that
// starts it. The result names argv either way.
func (c *command) args() []string {
	if !c.harness {
		return c.argv
	}
	return append([]string{c.argv[0], "-c", harness}, c.argv[1:]...)
}

// reportChannel returns the two ends of the way a report takes: r is read
// here, w is the child's POPCORN_FD. The seed for harness.py already waits in
// w, to be read to its end; it is in no file, argument or environment.
//
// It is a pair of sockets and no pipe: a pipe can be opened anew by any
// process of the same user through /proc/<pid>/fd, to write to it and to take
// away what the tester wrote, and a socket cannot. To a tester that writes to
// a descriptor they are the same.
func (c *command) reportChannel() (r, w *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	// Only this end: it has deadlines. The other blocks, as testers expect.
	err = unix.SetNonblock(fds[0], true)
	if err == nil && c.harness && c.seed != nil {
		_, err = unix.Write(fds[0], strconv.AppendInt(nil, *c.seed, 10))
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
