package harness

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A memory is an anonymous file, mapped here, that others map too. Its size is
// sealed: nobody can take a page away from under a reader.
type memory struct {
	file *os.File
	data []byte
}

func newMemory(name string, size int) (*memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("making shared memory: %w", err)
	}
	m := &memory{file: os.NewFile(uintptr(fd), name)}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		m.close()
		return nil, fmt.Errorf("making %d bytes of shared memory: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		m.close()
		return nil, fmt.Errorf("sealing shared memory: %w", err)
	}
	if size > 0 {
		if m.data, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			m.close()
			return nil, fmt.Errorf("mapping %d bytes of shared memory: %w", size, err)
		}
	}
	return m, nil
}

func (m *memory) close() {
	if m == nil {
		return
	}
	if m.data != nil {
		unix.Munmap(m.data)
		m.data = nil
	}
	m.file.Close()
}

func (m *memory) size() int {
	if m == nil {
		return 0
	}
	return len(m.data)
}

// flag is one of the page's words, a cache line apart.
func (m *memory) flag(line int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&m.data[64*line]))
}

// Lines of the page that this process and the worker share.
const (
	lineRelease  = 0
	lineDone     = 1
	pageSize     = 4096
	arenaMaxSize = 64 << 30
)
