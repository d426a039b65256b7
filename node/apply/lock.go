package apply

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gpu-mode/kbgen/schema/text"
)

const lockPath = "/run/kbnode.lock"

// Lock keeps others from changing the machine until unlock is called. Nothing is
// left of it then. A process that dies gives it up.
func (m *Machine) Lock(what string) (unlock func(), err error) {
	name := m.path(lockPath)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			defer f.Close()
			if !errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, fmt.Errorf("%s: %w", lockPath, err)
			}
			holder, _ := io.ReadAll(io.LimitReader(f, 200))
			return nil, fmt.Errorf("%s: held by %s: wait until it has ended", lockPath, text.Line(string(holder), 100))
		}
		// Whoever had it before may have removed the file meanwhile.
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if now, err := os.Stat(name); err != nil || !os.SameFile(mine, now) {
			f.Close()
			continue
		}
		err = f.Truncate(0)
		if err == nil {
			_, err = fmt.Fprintf(f, "kbnode %s, process %d", what, os.Getpid())
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		return func() {
			os.Remove(name)
			f.Close()
		}, nil
	}
}
