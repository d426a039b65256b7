package apply

import (
	"cmp"
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
type accounts struct{ users, groups map[string]int }

func (m *Machine) accounts() (*accounts, error) {
	users, err := m.table("/etc/passwd")
	if err != nil {
		return nil, err
	}
	groups, err := m.table("/etc/group")
	return &accounts{users, groups}, err
}

// table returns the numbers by name of a file with both.
func (m *Machine) table(name string) (map[string]int, error) {
	numbers := map[string]int{"root": 0} // also below a root directory that nobody has set up yet
	lines, err := m.fields(name, 3)
	for _, f := range lines {
		if number, err := strconv.Atoi(f[2]); err == nil {
			numbers[f[0]] = number
		}
	}
	return numbers, err
}

// fields returns the lines of a file such as /etc/passwd that have at least n fields.
func (m *Machine) fields(name string, n int) (lines [][]string, err error) {
	content, err := os.ReadFile(m.path(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(content)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) >= n {
			lines = append(lines, f)
		}
	}
	return lines, nil
}

// unfit lists what lets a user do more than a slot's user may; empty if there is nothing.
func (m *Machine) unfit(user string) (string, error) {
	var found []string
	users, err := m.fields("/etc/passwd", 7)
	if err != nil {
		return "", err
	}
	group := ""
	for _, f := range users {
		if f[0] != user {
			continue
		}
		group = f[3]
		if shell := filepath.Base(f[6]); shell != "nologin" && shell != "false" {
			found = append(found, "the shell "+strconv.Quote(f[6]))
		}
		if f[2] == "0" {
			found = append(found, "the number of root")
		}
		if locked := f[1] == "x" || strings.HasPrefix(f[1], "*") || strings.HasPrefix(f[1], "!"); !locked {
			found = append(found, "a password in /etc/passwd, or an empty one")
		}
	}
	groups, err := m.fields("/etc/group", 4)
	if err != nil {
		return "", err
	}
	for _, f := range groups {
		if f[0] != user && (f[2] == group || slices.Contains(strings.Split(f[3], ","), user)) {
			found = append(found, "the group "+f[0])
		}
	}
	shadow, err := m.fields("/etc/shadow", 2)
	if err != nil && !errors.Is(err, fs.ErrPermission) { // only root may read it, and only root may apply
		return "", err
	}
	for _, f := range shadow {
		if f[0] == user && !strings.HasPrefix(f[1], "*") && !strings.HasPrefix(f[1], "!") {
			found = append(found, "a password, or an empty one")
		}
	}
	return strings.Join(found, ", "), nil
}

// name is a number's; where it has several, the wanted one.
func name(numbers map[string]int, number int, want string) string {
	if n, ok := numbers[want]; ok && n == number {
		return want
	}
	least := ""
	for name, n := range numbers {
		if n == number && (least == "" || name < least) {
			least = name
		}
	}
	return cmp.Or(least, strconv.Itoa(number))
}

// Useradd is a system's users by its own commands.
type Useradd struct {
	Root string // "/", or a directory with /etc/passwd below
}

// Add makes a system user that cannot log in, with a group of its own.
func (u *Useradd) Add(ctx context.Context, user resource.User) error {
	groups, err := (&Machine{Root: u.Root}).table("/etc/group")
	if err != nil {
		return err
	}
	args := []string{"--system", "--user-group", "--no-create-home", "--home-dir", user.Home, "--shell", "/usr/sbin/nologin"}
	if _, ok := groups[user.Name]; ok { // left by one that ended early
		args = append([]string{"--gid", user.Name, "--system"}, args[2:]...)
	}
	return u.run(ctx, "useradd", append(args, "--", user.Name)...)
}

// Remove removes a user and its group, which userdel leaves on some systems.
func (u *Useradd) Remove(ctx context.Context, name string) error {
	for _, step := range [][2]string{{"/etc/passwd", "userdel"}, {"/etc/group", "groupdel"}} {
		numbers, err := (&Machine{Root: u.Root}).table(step[0])
		if err != nil {
			return err
		}
		if _, ok := numbers[name]; ok {
			if err := u.run(ctx, step[1], "--", name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *Useradd) run(ctx context.Context, name string, args ...string) error {
	if filepath.Clean(u.Root) != "/" {
		args = append([]string{"--prefix", u.Root}, args...)
	}
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			return err
		}
		return fmt.Errorf("%s: %w: %s", name, err, text.Line(string(out), 300))
	}
	return nil
}
