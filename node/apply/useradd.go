package apply

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Useradd is a system's users by its own commands.
type Useradd struct {
	Root string // "/", or a directory with /etc/passwd below
}

// Add makes a system user that cannot log in, with a group of its own.
func (u *Useradd) Add(ctx context.Context, user resource.User, exists bool) error {
	if exists {
		return u.run(ctx, "usermod", "--append", "--groups", strings.Join(user.Groups, ","), "--", user.Name)
	}
	a, err := (&Machine{Root: u.Root}).accounts()
	if err != nil {
		return err
	}
	args := []string{"--system", "--user-group", "--no-create-home", "--home-dir", user.Home, "--shell", "/usr/sbin/nologin"}
	if _, ok := a.groups[user.Name]; ok { // left by one that ended early
		args = append([]string{"--gid", user.Name, "--system"}, args[2:]...)
	}
	if len(user.Groups) > 0 {
		args = append(args, "--groups", strings.Join(user.Groups, ","))
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
