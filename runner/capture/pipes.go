package capture

import (
	"cmp"
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
	Err error // why the first one that could not be opened was not

	readers, writers []*os.File
	sinks            []io.Writer
	group            sync.WaitGroup
}

// Open makes one more pipe by pair, to be read into sink, and returns the end
// that the process gets; nil with Err.
func (p *Pipes) Open(pair func() (r, w *os.File, err error), sink io.Writer) *os.File {
	r, w, err := pair()
	if err != nil {
		p.Err = cmp.Or(p.Err, fmt.Errorf("opening a pipe: %w", err))
		return nil
	}
	p.readers, p.writers, p.sinks = append(p.readers, r), append(p.writers, w), append(p.sinks, sink)
	return w
}

// Started closes the ends that the child now has and begins to read.
func (p *Pipes) Started() {
	for _, w := range p.writers {
		w.Close()
	}
	for i := range p.readers {
		r, sink := p.readers[i], p.sinks[i]
		p.group.Go(func() { io.Copy(sink, r) })
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

// pipeSize is how far a program may be ahead of its reader, in bytes.
const pipeSize = 256 << 10

// OpenPipe returns the two ends of a pipe of pipeSize.
func OpenPipe() (r, w *os.File, err error) {
	r, w, err = os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	if c, err := r.SyscallConn(); err == nil {
		// Refused to users who have many pipes; then the size stays as it is.
		c.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
	return r, w, nil
}
