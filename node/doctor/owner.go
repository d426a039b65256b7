package doctor

import (
	"io/fs"
	"syscall"
)

// owner returns the numbers of a file's owner and group; -1 where they are not known.
func owner(info fs.FileInfo) (uid, gid int) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), int(s.Gid)
	}
	return -1, -1
}
