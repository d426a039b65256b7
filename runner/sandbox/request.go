package sandbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// sendRequest tells a sandbox's first process which program to run, which may be
// long after that process began to build the sandbox. The program's descriptors go
// with it.
//
// Error: the sandbox's first process is gone, or the system's.
func sendRequest(socket *os.File, c Command) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	files := append([]*os.File{cmp.Or(c.Stdout, null), cmp.Or(c.Stderr, null)}, c.Files...)
	return send(socket, c, files...)
}

// receiveRequest waits for the request. Its descriptors are for the program's 1, 2 and
// so on; each closes with an exec.
//
// Errors: io.EOF when there will be none; otherwise it cannot be read.
func receiveRequest(socket int) (*Command, error) {
	var c Command
	var err error
	if c.received, err = receive(socket, &c); err != nil {
		return nil, err
	}
	if len(c.received) < 2 {
		return nil, fmt.Errorf("receiving a request: got %d descriptors, want 2 or more", len(c.received))
	}
	return &c, nil
}

// send passes the files on, and v in an anonymous file: arguments and
// environments would be visible to others, and may be longer than a message.
func send(socket *os.File, v any, files ...*os.File) error {
	fd, err := unix.MemfdCreate("message", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	text := os.NewFile(uintptr(fd), "message")
	defer text.Close()
	if err := json.NewEncoder(text).Encode(v); err != nil {
		return err
	}
	fds := []int{fd}
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	return unix.Sendmsg(int(socket.Fd()), []byte{0}, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
}

// maxFiles is how many descriptors one message carries at most.
const maxFiles = 6

// receive waits for what send sends, reads v and returns the files, which close
// with an exec.
//
// Errors: io.EOF when the other end is closed; otherwise it cannot be read.
func receive(socket int, v any) ([]int, error) {
	data, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*maxFiles))
	var n, oob int
	err := error(unix.EINTR)
	for err == unix.EINTR {
		n, oob, _, _, err = unix.Recvmsg(socket, data, rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("receiving: %w", err)
	}
	if n == 0 {
		return nil, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(rights[:oob])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("receiving: got %d control messages, want 1 (%v)", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil, fmt.Errorf("receiving: got %d descriptors, want some (%v)", len(fds), err)
	}
	message := os.NewFile(uintptr(fds[0]), "message")
	defer message.Close()
	if err := json.NewDecoder(io.NewSectionReader(message, 0, 1<<30)).Decode(v); err != nil {
		return nil, fmt.Errorf("receiving: %w", err)
	}
	return fds[1:], nil
}
