package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/node/resource"
	"github.com/gpu-mode/kbgen/node/system"
)

// fakeSystemd is a manager that behaves: it starts what it has loaded, loads when
// it is told, knows by links what is enabled. It lives on in a file, as systemd
// does when kbnode is killed.
type fakeSystemd struct {
	root string
	file string // its state
	uses map[string][]string
	fail func(verb, unit string) error
}

type fakeState struct {
	Active  map[string]string // what the unit's files held when it started
	Loaded  map[string]string // unit files, when they were read
	Stops   map[string]int    // SIGTERMs
	Reloads int
	Held    map[string]bool
}

func (s *fakeSystemd) state() *fakeState {
	is := &fakeState{Active: map[string]string{}, Loaded: map[string]string{}, Stops: map[string]int{}, Held: map[string]bool{}}
	if raw, err := os.ReadFile(s.file); err == nil {
		if err := json.Unmarshal(raw, is); err != nil {
			panic(err)
		}
	}
	return is
}

func (s *fakeSystemd) save(is *fakeState) {
	raw, err := json.Marshal(is)
	if err == nil {
		err = os.WriteFile(s.file+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(s.file+".new", s.file)
	}
	if err != nil {
		panic(err)
	}
}

// unitFile is where a unit's file lies; empty: nowhere.
func (s *fakeSystemd) unitFile(unit string) string {
	template := unit
	if before, after, ok := strings.Cut(unit, "@"); ok {
		template = before + "@" + filepath.Ext(after)
	}
	for _, dir := range []string{"etc/systemd/system", "usr/lib/systemd/system"} {
		for _, name := range []string{unit, template} {
			if file := filepath.Join(s.root, dir, name); exists(file) {
				return file
			}
		}
	}
	return ""
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

func (s *fakeSystemd) link(unit string) string {
	return filepath.Join(s.root, "etc/systemd/system/multi-user.target.wants", unit)
}

// content is what a unit's files hold now.
func (s *fakeSystemd) content(unit string) string {
	var all strings.Builder
	for _, name := range s.uses[unit] {
		content, _ := os.ReadFile(filepath.Join(s.root, name))
		all.Write(content)
	}
	return all.String()
}

func (s *fakeSystemd) States(_ context.Context, units []string) (map[string]resource.UnitState, error) {
	is := s.state()
	states := map[string]resource.UnitState{}
	for _, u := range units {
		_, active := is.Active[u]
		states[u] = resource.UnitState{Found: s.unitFile(u) != "" || active, Enabled: exists(s.link(u)), Active: active, Held: is.Held[u], Static: strings.HasSuffix(u, ".slice")}
	}
	return states, nil
}

func (s *fakeSystemd) Do(_ context.Context, verb string, units []string) error {
	return map[string]func([]string) error{"enable": s.enable, "disable": s.disable, "start": s.start, "stop": s.stop, "restart": s.restart}[verb](units)
}

func (s *fakeSystemd) Reload(context.Context) error {
	is := s.state()
	is.Loaded = map[string]string{}
	is.Reloads++
	for _, dir := range []string{"etc/systemd/system", "usr/lib/systemd/system"} {
		entries, _ := os.ReadDir(filepath.Join(s.root, dir))
		for _, e := range entries {
			file := filepath.Join(s.root, dir, e.Name())
			if content, err := os.ReadFile(file); err == nil {
				is.Loaded[file] = string(content)
			}
		}
	}
	s.save(is)
	return nil
}

func (s *fakeSystemd) each(verb string, units []string, f func(is *fakeState, unit string) error) error {
	is := s.state()
	var faults []error
	for _, u := range units {
		err := f(is, u)
		if err == nil && s.fail != nil {
			err = s.fail(verb, u)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", u, err))
		}
	}
	s.save(is)
	return errors.Join(faults...)
}

func (s *fakeSystemd) enable(units []string) error {
	return s.each("enable", units, func(_ *fakeState, u string) error {
		file := s.unitFile(u)
		if file == "" {
			return errors.New("no such unit")
		}
		if err := os.MkdirAll(filepath.Dir(s.link(u)), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("/etc/systemd/system/"+filepath.Base(file), s.link(u)); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	})
}

func (s *fakeSystemd) disable(units []string) error {
	return s.each("disable", units, func(_ *fakeState, u string) error {
		if strings.HasSuffix(u, ".slice") {
			return errors.New("it has no [Install]")
		}
		_ = os.Remove(s.link(u))
		_ = os.Remove(filepath.Dir(s.link(u)))
		return nil
	})
}

func (s *fakeSystemd) start(units []string) error {
	return s.each("start", units, s.startUnit)
}

func (s *fakeSystemd) startUnit(is *fakeState, u string) error {
	if _, ok := is.Active[u]; ok {
		return nil
	}
	file := s.unitFile(u)
	if file == "" {
		return errors.New("no such unit")
	}
	if content, err := os.ReadFile(file); err != nil || is.Loaded[file] != string(content) {
		return errors.New("its file changed on disk: daemon-reload was forgotten")
	}
	is.Active[u] = s.content(u)
	return nil
}

func (s *fakeSystemd) stop(units []string) error {
	return s.each("stop", units, func(is *fakeState, u string) error {
		if _, ok := is.Active[u]; !ok {
			return nil
		}
		is.Stops[u]++
		delete(is.Active, u)
		if slot, ok := strings.CutSuffix(strings.TrimPrefix(u, "kbnode-"), ".slice"); ok && is.Active["kbnode-agent@"+slot+".service"] != "" {
			return errors.New("its agent's container is killed with it")
		} else if ok && slices.Contains(units, "kbnode-agent@"+slot+".service") {
			return errors.New("its agent's container is killed while the agent waits for it")
		}
		return nil
	})
}

func (s *fakeSystemd) restart(units []string) error {
	return s.each("restart", units, func(is *fakeState, u string) error {
		delete(is.Active, u)
		return s.startUnit(is, u)
	})
}

func (s *fakeSystemd) Verify(_ context.Context, dir string, names []string) ([]string, error) {
	var faults []string
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(content), "Misspelt") {
			faults = append(faults, name+":2: Unknown key")
		}
	}
	return faults, nil
}

// fakeUsers keeps users in the files that real ones stand in.
type fakeUsers struct{ root string }

func (u *fakeUsers) rewrite(name string, f func(lines []string) []string) error {
	file := filepath.Join(u.root, "etc", name)
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := f(strings.Split(strings.TrimSpace(string(raw)), "\n"))
	if err := os.WriteFile(file+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o640); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (u *fakeUsers) Add(_ context.Context, user resource.User) error {
	err := u.rewrite("group", func(lines []string) []string {
		return append(lines, fmt.Sprintf("%s:x:%d:", user.Name, 64000+len(lines)))
	})
	if err != nil {
		return err
	}
	return u.rewrite("passwd", func(lines []string) []string {
		return append(lines, fmt.Sprintf("%s:x:%d:%d::%s:/usr/sbin/nologin", user.Name, 64000+len(lines), 64000+len(lines)+1, user.Home))
	})
}

func (u *fakeUsers) Remove(_ context.Context, name string) error {
	mine := func(line string) bool { return strings.HasPrefix(line, name+":") }
	if err := u.rewrite("passwd", func(lines []string) []string { return slices.DeleteFunc(lines, mine) }); err != nil {
		return err
	}
	return u.rewrite("group", func(lines []string) []string {
		lines = slices.DeleteFunc(lines, mine)
		for i := range lines {
			f := strings.Split(lines[i], ":")
			f[3] = strings.Join(slices.DeleteFunc(strings.Split(f[3], ","), func(s string) bool { return s == name }), ",")
			lines[i] = strings.Join(f, ":")
		}
		return lines
	})
}

// tree is all below a directory: kind, mode, owner, content of each path.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		uid, gid := system.Owner(info)
		line := fmt.Sprintf("%s %d:%d", info.Mode(), uid, gid)
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q", content)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		rel, err := filepath.Rel(root, name)
		all[rel] = line
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
