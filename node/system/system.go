// Package system runs the programs of the machine that kbnode runs on, and looks up
// its users. It knows nothing of slots.
package system

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-mode/kbgen/schema/text"
)

// SearchPath is where kbnode looks for programs, whatever PATH it was started with.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Environ is the environment of the programs that kbnode starts: what a
// person or a job has set must not change what they say.
func Environ() []string {
	return []string{"PATH=" + SearchPath, "LC_ALL=C.UTF-8", "HOME=/root", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER="}
}

// Look finds a program.
func Look(name string) (path string, ok bool) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	for _, dir := range filepath.SplitList(SearchPath) {
		if path := filepath.Join(dir, name); executable(path) {
			return path, true
		}
	}
	return "", false
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// Run runs a program of the system and returns what it printed. The error
// carries the last line of its standard error.
func Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	path, ok := Look(name)
	if !ok {
		return nil, fmt.Errorf("no %s on %s", name, SearchPath)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = Environ()
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		message := text.Line(lines[len(lines)-1], 300)
		if message == "" {
			message = err.Error()
		}
		return out.Bytes(), fmt.Errorf("%s: %s", filepath.Base(name), message)
	}
	return out.Bytes(), nil
}

// A User is an account of the machine.
type User struct {
	UID, GID int
	Groups   []string // by name
}

// LookupUser looks an account up.
func LookupUser(name string) (User, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return User{}, err
	}
	found := User{}
	if found.UID, err = strconv.Atoi(u.Uid); err != nil {
		return found, err
	}
	if found.GID, err = strconv.Atoi(u.Gid); err != nil {
		return found, err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return found, err
	}
	for _, id := range ids {
		if g, err := user.LookupGroupId(id); err == nil {
			found.Groups = append(found.Groups, g.Name)
		}
	}
	return found, nil
}

// Owner returns the numbers of a file's owner and group; -1 where they are not known.
func Owner(info fs.FileInfo) (uid, gid int) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), int(s.Gid)
	}
	return -1, -1
}

// Properties reads what systemctl show prints: a line for each, NAME=VALUE.
func Properties(shown string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(shown) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[key] = value
		}
	}
	return values
}
