package secret

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memoryFile returns a file in memory that holds the value and has no name in any
// directory. It is gone when this process ends, for any reason. Until then, processes
// of the same user can open it by the path that Name returns.
func memoryFile(value []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("kbgen-secret", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
	_, err = f.Write(value)
	if err == nil {
		err = f.Chmod(0o400)
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("writing the value: %w", err)
	}
	return f, nil
}
