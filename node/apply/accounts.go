package apply

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/schema/text"
)

// accounts is who is there by /etc/passwd and /etc/group.
type accounts struct {
	users  map[string][2]int // uid, gid
	groups map[string]int
}

func (m *Machine) accounts() (*accounts, error) {
	a := &accounts{users: map[string][2]int{}, groups: map[string]int{}}
	err := m.table("/etc/passwd", func(f []string) {
		uid, err := strconv.Atoi(field(f, 2))
		gid, err2 := strconv.Atoi(field(f, 3))
		if err == nil && err2 == nil {
			a.users[f[0]] = [2]int{uid, gid}
		}
	})
	if err != nil {
		return nil, err
	}
	err = m.table("/etc/group", func(f []string) {
		if gid, err := strconv.Atoi(field(f, 2)); err == nil {
			a.groups[f[0]] = gid
		}
	})
	// A root directory that nobody has set up yet has root all the same.
	if _, ok := a.users["root"]; !ok {
		a.users["root"] = [2]int{0, 0}
	}
	if _, ok := a.groups["root"]; !ok {
		a.groups["root"] = 0
	}
	return a, err
}

func field(f []string, i int) string {
	if i >= len(f) {
		return ""
	}
	return f[i]
}

// table calls f with the fields of each line.
func (m *Machine) table(name string, f func([]string)) error {
	file, err := os.Open(m.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20) // a group may have many members
	for lines.Scan() {
		f(strings.Split(lines.Text(), ":"))
	}
	return lines.Err()
}

// owner and group are names for numbers; where the number has several, the wanted
// one.
func (a *accounts) owner(uid int, want string) string {
	if u, ok := a.users[want]; ok && u[0] == uid {
		return want
	}
	names := []string{}
	for name, u := range a.users {
		if u[0] == uid {
			names = append(names, name)
		}
	}
	return first(names, uid)
}

func (a *accounts) group(gid int, want string) string {
	if g, ok := a.groups[want]; ok && g == gid {
		return want
	}
	names := []string{}
	for name, g := range a.groups {
		if g == gid {
			names = append(names, name)
		}
	}
	return first(names, gid)
}

func first(names []string, number int) string {
	if len(names) == 0 {
		return strconv.Itoa(number)
	}
	return slices.Min(names)
}

// Useradd is a system's users by its own commands.
type Useradd struct {
	Root string // "/", or a directory with /etc/passwd below
}

// Add makes a system user that cannot log in, with a group of its own.
func (u *Useradd) Add(ctx context.Context, user resource.User) error {
	a, err := (&Machine{Root: u.Root}).accounts()
	if err != nil {
		return err
	}
	args := []string{"--system", "--user-group", "--no-create-home", "--home-dir", user.Home, "--shell", "/usr/sbin/nologin"}
	if _, ok := a.groups[user.Name]; ok { // left by one that ended early
		args = append([]string{"--gid", user.Name, "--system"}, args[2:]...)
	}
	return u.run(ctx, "useradd", append(args, "--", user.Name)...)
}

// Remove removes a user and its group, which userdel leaves on some systems.
func (u *Useradd) Remove(ctx context.Context, name string) error {
	for _, command := range []string{"userdel", "groupdel"} {
		a, err := (&Machine{Root: u.Root}).accounts()
		if err != nil {
			return err
		}
		_, is := a.users[name]
		if command == "groupdel" {
			_, is = a.groups[name]
		}
		if !is {
			continue
		}
		if err := u.run(ctx, command, "--", name); err != nil {
			return err
		}
	}
	return nil
}

func (u *Useradd) run(ctx context.Context, name string, args ...string) error {
	if filepath.Clean(u.Root) != "/" {
		args = append([]string{"--prefix", u.Root}, args...)
	}
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return err
		}
		return fmt.Errorf("%s: %w: %s", name, err, text.Line(string(out), 300))
	}
	return nil
}

// Git is git by its own command.
func Git(ctx context.Context, env []string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Env = append(append(c.Environ(), "GIT_TERMINAL_PROMPT=0"), env...)
	return c.CombinedOutput()
}
