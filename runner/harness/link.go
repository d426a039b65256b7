package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A link is this end of a pair of sockets that keep messages whole.
type link struct {
	file *os.File
	conn syscall.RawConn
	buf  []byte
}

// newLink returns this end, and the other one for a process to inherit.
func newLink() (ours *link, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening a pair of sockets: %w", err)
	}
	// Messages carry the sender's process number, and may be long. The other end
	// blocks.
	unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	for _, fd := range fds {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 2*maxMessage)
	}
	unix.SetNonblock(fds[0], true)
	l := &link{file: os.NewFile(uintptr(fds[0]), "link"), buf: make([]byte, maxMessage+1)}
	if l.conn, err = l.file.SyscallConn(); err != nil {
		unix.Close(fds[1])
		l.file.Close()
		return nil, nil, err
	}
	return l, os.NewFile(uintptr(fds[1]), "link"), nil
}

func (l *link) close() { l.file.Close() }

// hangUp tells the other end that there is nobody any more, and leaves the end
// itself to be closed elsewhere: descriptors that wait in it are closed, too, see
// control.
func (l *link) hangUp() {
	if l != nil {
		l.conn.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RDWR) })
		go l.close() // ends when the last of them is closed, or with this process
	}
}

// errSilent is a process that did not answer in time.
var errSilent = errors.New("no answer in time")

// send hands over one message and files.
func (l *link) send(ctx context.Context, message []byte, files ...*os.File) error {
	var rights []byte
	if len(files) > 0 {
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		rights = unix.UnixRights(fds...)
	}
	l.file.SetWriteDeadline(time.Now().Add(sendLimit))
	defer context.AfterFunc(ctx, func() { l.file.SetWriteDeadline(past) })()
	var sendErr error
	err := l.conn.Write(func(fd uintptr) bool {
		sendErr = unix.Sendmsg(int(fd), message, rights, nil, unix.MSG_NOSIGNAL)
		return sendErr != unix.EAGAIN && sendErr != unix.ENOBUFS
	})
	return l.why(ctx, errors.Join(err, sendErr))
}

// sendLimit is how long a process may leave a message waiting that it asked
// for, on the busiest of machines.
const sendLimit = 2 * time.Minute

var past = time.Unix(1, 0)

// receive returns one message, valid until the next, and who sent it.
//
// Errors: io.EOF when the other end is gone, errSilent after the limit,
// errNonsense for a message that is empty, too long or has descriptors with it;
// the context's.
func (l *link) receive(ctx context.Context, limit time.Duration) (message []byte, sender int, err error) {
	l.file.SetReadDeadline(time.Now().Add(limit))
	defer context.AfterFunc(ctx, func() { l.file.SetReadDeadline(past) })()
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	var n, oobn int
	var receiveErr error
	var oob [2048]byte // holds as many descriptors as a message can carry
	err = l.conn.Read(func(fd uintptr) bool {
		n, oobn, _, _, receiveErr = unix.Recvmsg(int(fd), l.buf, oob[:], unix.MSG_CMSG_CLOEXEC)
		return receiveErr != unix.EAGAIN
	})
	if err := l.why(ctx, errors.Join(err, receiveErr)); err != nil {
		return nil, 0, err
	}
	sender, files := control(oob[:oobn])
	switch {
	case n == 0 && oobn == 0: // a message says at least who sent it
		return nil, 0, io.EOF
	case n == 0 || n > maxMessage || files:
		return nil, 0, errNonsense
	}
	return l.buf[:n], sender, nil
}

// control returns who sent a message, and whether descriptors came with it, which
// nobody wants. They are closed elsewhere: closing a socket may take as long as
// its sender wishes.
func control(oob []byte) (sender int, files bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, false
	}
	for i := range messages {
		if who, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			sender = int(who.Pid)
		}
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) > 0 {
			files = true
			go func() { // ends with the last of them, or with this process
				for _, fd := range fds {
					unix.Close(fd)
				}
			}()
		}
	}
	return sender, files
}

func (l *link) why(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errSilent
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return io.EOF
	}
	return err
}

// ready reports whether a message or the other end's end waits.
func (l *link) ready() bool { return l.poll() != 0 }

func (l *link) poll() int16 {
	poll := []unix.PollFd{{Events: unix.POLLIN}}
	l.conn.Control(func(fd uintptr) { poll[0].Fd = int32(fd); unix.Poll(poll, 0) })
	return poll[0].Revents
}
