package capture

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// outputGrace is how long pipes are read on after every process has gone.
// They end at once unless a descriptor was smuggled out of the tree.
const outputGrace = 500 * time.Millisecond

// Pipes copy a process's pipes into captures, one goroutine each. They end
// at the pipe's end or, after Finish, outputGrace later.
type Pipes struct {
	readers, writers []*os.File
	sinks            []io.Writer
	group            sync.WaitGroup
}

// Open makes one more pipe by pair, to be read into sink, and returns the end
// that the process gets.
func (p *Pipes) Open(pair func() (r, w *os.File, err error), sink io.Writer) (*os.File, error) {
	r, w, err := pair()
	if err != nil {
		return nil, fmt.Errorf("opening a pipe: %w", err)
	}
	p.readers, p.writers, p.sinks = append(p.readers, r), append(p.writers, w), append(p.sinks, sink)
	return w, nil
}

// Started closes the ends that the child now has and begins to read.
func (p *Pipes) Started() {
	for _, w := range p.writers {
		w.Close()
	}
	for i := range p.readers {
		r, sink := p.readers[i], p.sinks[i]
		p.group.Go(func() { drain(r, sink) })
	}
}

// HangUp ends the report's channel for processes that outlive the harness. What
// was written is still read, and writing fails from now on. A pipe cannot do
// this, and need not: nothing is decided by output.
func (p *Pipes) HangUp() {
	for _, r := range p.readers {
		if c, err := r.SyscallConn(); err == nil {
			c.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RD) })
		}
	}
}

// Finish waits until all is read. Every process that had a pipe should be gone.
func (p *Pipes) Finish() {
	for _, r := range p.readers {
		r.SetReadDeadline(time.Now().Add(outputGrace))
	}
	p.group.Wait()
}

// Close ends whatever an error left open.
func (p *Pipes) Close() {
	for _, f := range append(p.readers, p.writers...) {
		f.Close()
	}
	p.group.Wait()
}

// drainSize is how much of an output is read at once, in bytes, and how far a
// program may be ahead of its reader.
const drainSize = 256 << 10

// OpenPipe returns the two ends of a pipe of drainSize.
func OpenPipe() (r, w *os.File, err error) {
	r, w, err = os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	if c, err := r.SyscallConn(); err == nil {
		// Refused to users who have many pipes; then the size stays as it is.
		c.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_SETPIPE_SZ, drainSize) })
	}
	return r, w, nil
}

// drain writes to sink what comes from r, a pipe or a socket, until its end,
// its deadline or its close.
//
// The kernel locks a pipe while it is read, so a reader that copies slows the
// writer down. Here the pages are moved into a pipe of this process, which takes
// no time, and copied from there.
func drain(r *os.File, sink io.Writer) {
	buf := make([]byte, 64<<10)
	conn, err := r.SyscallConn()
	if err != nil {
		return // it is closed
	}
	var side [2]int
	if err := unix.Pipe2(side[:], unix.O_CLOEXEC); err != nil {
		io.CopyBuffer(onlyWriter{sink}, onlyReader{r}, buf)
		return
	}
	defer unix.Close(side[0])
	defer unix.Close(side[1])
	unix.FcntlInt(uintptr(side[1]), unix.F_SETPIPE_SZ, drainSize)
	for {
		var n int64
		var moving error
		err := conn.Read(func(fd uintptr) bool {
			n, moving = unix.Splice(int(fd), nil, side[1], nil, drainSize, unix.SPLICE_F_NONBLOCK)
			return moving != unix.EAGAIN
		})
		switch {
		case err != nil || moving == nil && n == 0:
			return
		case moving == unix.EINTR:
			continue
		case moving != nil: // a system without splice
			io.CopyBuffer(onlyWriter{sink}, onlyReader{r}, buf)
			return
		}
		for n > 0 { // they are there: this does not wait
			got, err := unix.Read(side[0], buf[:min(n, int64(len(buf)))])
			if err != nil && err != unix.EINTR {
				return
			}
			sink.Write(buf[:max(0, got)])
			n -= int64(max(0, got))
		}
	}
}

// onlyReader and onlyWriter keep io.CopyBuffer to its buffer.
type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }
