package proxy

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema/text"
)

// JobDirPrefix begins the names of jobs' directories, which lie directly in the
// slot's TempDir. The agent's own bootstrap uses the same.
const JobDirPrefix = "buildkite-job-"

var jobDir = regexp.MustCompile(`^` + JobDirPrefix + `[a-zA-Z0-9-]{1,100}$`)

// mounts are the directories that the container gets of the machine: the job's.
func (p *Proxy) mounts(h *askedHost) ([]mount, error) {
	type bind struct{ text, source, target, mode string }
	var all []bind
	for _, said := range h.Binds {
		parts := append(strings.Split(said, ":"), "", "")
		if strings.Count(said, ":") > 2 {
			parts[0] = "" // fits nothing below
		}
		all = append(all, bind{said, parts[0], parts[1], parts[2]})
	}
	for _, m := range h.Mounts {
		b := bind{m.Type + " " + m.Source + ":" + m.Target, m.Source, m.Target, ""}
		if m.Type != "bind" || m.ReadOnly {
			b.source = ""
		}
		all = append(all, b)
	}
	var out []mount
	for _, b := range all {
		said := text.Quote(b.text)
		name := path.Base(b.source)
		switch {
		case b.source != path.Join(p.TempDir, name) || !jobDir.MatchString(name):
			return nil, fmt.Errorf("volume %s: only the job's directory", said)
		case b.mode != "" && b.mode != "rw":
			return nil, fmt.Errorf("volume %s: only the job's directory, rw", said)
		}
		if err := target(b.target); err != nil {
			return nil, fmt.Errorf("volume %s: %v", said, err)
		}
		if err := p.real(b.source); err != nil {
			return nil, fmt.Errorf("volume %s: only the job's directory: %v", said, err)
		}
		out = append(out, mount{Type: "bind", Source: b.source, Target: b.target})
	}
	return out, nil
}

// real says whether a directory is the slot's user's and reached without a link.
// Only that user can change it between here and the mount, and no code of a job's
// runs as that user outside a container.
func (p *Proxy) real(dir string) error {
	fd, err := openPlain(dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if int(st.Uid) != p.UID {
		return fmt.Errorf("got one of user %d, want %d", st.Uid, p.UID)
	}
	return nil
}

// openPlain opens a directory, with no link on the way to it.
//
// It goes there step by step: openat2 would do it in one, and RestrictSUIDSGID= of
// systemd takes that call away.
func openPlain(dir string) (fd int, err error) {
	const how = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err = unix.Open("/", how, 0)
	for name := range strings.SplitSeq(strings.Trim(path.Clean(dir), "/"), "/") {
		if err != nil {
			break
		}
		above := fd
		fd, err = unix.Openat(above, name, how, 0)
		unix.Close(above)
	}
	if err == unix.ELOOP || err == unix.ENOTDIR {
		err = fmt.Errorf("got a link or no directory")
	}
	return fd, err
}

// covered are the directories of an image that nothing is mounted over.
var covered = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/lib/kbrun", "/var/run"}

// target says whether a path in a container is one where a job's directory may be.
func target(at string) error {
	clean := strings.TrimSuffix(at, "/")
	if !path.IsAbs(at) || path.Clean(at) != clean {
		return fmt.Errorf("want an absolute path other than /")
	}
	for _, dir := range covered {
		if clean == dir || strings.HasPrefix(clean, dir+"/") {
			return fmt.Errorf("want a path outside %s", dir)
		}
	}
	return nil
}

// tmpfs checks file systems in memory and writes their options anew.
func tmpfs(asks map[string]string, most int64) (map[string]string, error) {
	out := map[string]string{}
	for at, options := range asks {
		if !slices.Contains([]string{"/tmp", "/var/tmp", "/run"}, at) {
			return nil, fmt.Errorf("--tmpfs %s: want /tmp, /var/tmp or /run", text.Quote(at))
		}
		exec, mode, size := "noexec", "1777", most
		for option := range strings.SplitSeq(options, ",") {
			key, value, _ := strings.Cut(option, "=")
			var err error
			switch key {
			case "", "rw", "nosuid", "nodev":
			case "exec", "noexec":
				exec = key
			case "mode":
				_, err = strconv.ParseUint(value, 8, 12)
				mode = value
			case "size":
				var n int64
				n, err = Bytes(value)
				size = min(n, most)
			default:
				err = strconv.ErrSyntax
			}
			if err != nil {
				return nil, fmt.Errorf("--tmpfs %s: option %s: want rw, exec, noexec, nosuid, nodev, size=N or mode=N", at, text.Quote(option))
			}
		}
		out[at] = fmt.Sprintf("rw,nosuid,nodev,%s,size=%d,mode=%s", exec, size, mode)
	}
	return out, nil
}

// Bytes reads "8g", "512m", "64k" and "4096".
func Bytes(s string) (int64, error) {
	shift := 0
	if s != "" {
		if at := strings.IndexByte("kmg", s[len(s)-1]|0x20); at >= 0 {
			s, shift = s[:len(s)-1], 10*(at+1)
		}
	}
	n, err := strconv.ParseInt(s, 10, 33)
	if err == nil && n <= 0 {
		err = strconv.ErrRange
	}
	return n << shift, err
}

// How many files a process of a container may have open: the most that a step may ask
// for, and what it gets unless it asks.
const (
	maxFiles   = 1 << 20
	usualFiles = 16 << 10
)

// ulimits checks limits of processes, and adds those that every container has. None
// dumps core.
func ulimits(asks []ulimit) ([]ulimit, error) {
	for _, u := range asks {
		bad := false
		want := ""
		switch u.Name {
		case "memlock": // what is locked counts as memory of the slot
			bad, want = u.Soft < -1 || u.Hard < -1, "-1 or a number of bytes"
		case "core":
			bad, want = u.Soft != 0 || u.Hard != 0, "0"
		case "nofile":
			bad, want = u.Soft < 0 || u.Hard < 0 || u.Soft > maxFiles || u.Hard > maxFiles, fmt.Sprintf("0 to %d", maxFiles)
		case "stack":
			bad, want = u.Soft < -1 || u.Hard < -1, "-1 or a number of bytes"
		default:
			return nil, fmt.Errorf("--ulimit %s: want memlock, core, nofile or stack", text.Quote(u.Name))
		}
		if bad {
			return nil, fmt.Errorf("--ulimit %s: got %d:%d, want %s", u.Name, u.Soft, u.Hard, want)
		}
	}
	for _, limit := range []ulimit{{Name: "core"}, {"nofile", usualFiles, usualFiles}} {
		if !slices.ContainsFunc(asks, func(u ulimit) bool { return u.Name == limit.Name }) {
			asks = append(asks, limit)
		}
	}
	return asks, nil
}
