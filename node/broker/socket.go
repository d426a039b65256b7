package broker

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/gpu-mode/kbgen/node"
)

// A Socket says where a broker listens, and who may ask it.
type Socket struct {
	Path   string
	Group  string // "": that of the process
	Any    bool   // any user may
	Handed bool   // systemd made it
}

// Listen takes the socket that systemd made, or makes one.
func (s *Socket) Listen() (net.Listener, error) {
	if s.Handed {
		handed, err := activation.Listeners()
		if err != nil || len(handed) != 1 || handed[0] == nil {
			return nil, fmt.Errorf("got %d sockets from systemd, want one: %v", len(handed), err)
		}
		return handed[0], nil
	}
	if info, err := os.Lstat(s.Path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, node.Usagef("--socket %s: got a file that is no socket", s.Path)
		}
		if conn, err := net.Dial("unix", s.Path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("--socket %s: another broker answers there", s.Path)
		}
		os.Remove(s.Path) // of a broker that was killed
	}
	mask := syscall.Umask(0o117)
	l, err := net.Listen("unix", s.Path)
	syscall.Umask(mask)
	if err == nil && s.Any {
		err = os.Chmod(s.Path, 0o666)
	}
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := s.give(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Open reports whether any user may ask: also at a socket that is there already, as
// systemd made it.
func (s *Socket) Open() bool {
	if s.Any {
		return true
	}
	info, err := os.Stat(s.Path)
	return err == nil && info.Mode()&fs.ModeSocket != 0 && info.Mode()&0o002 != 0
}

// give gives the socket to the group that may ask.
func (s *Socket) give() error {
	if s.Group == "" {
		return nil
	}
	g, err := user.LookupGroup(s.Group)
	if err != nil {
		return node.Usagef("--group: %w", err)
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil {
		return node.Usagef("--group: %w", err)
	}
	return os.Chown(s.Path, -1, id)
}
