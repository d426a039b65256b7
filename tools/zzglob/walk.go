package zzglob

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

type globConfig struct {
	symlinks     bool
	intermediate bool
}

// A GlobOption changes how a walk goes.
type GlobOption func(*globConfig)

// TraverseSymlinks says whether wildcards look into directories behind
// symbolic links (default false). A directory is not entered again inside
// itself, so links that form a circle end. Links in the fixed beginning of a
// pattern are followed either way, and a link that matches is always reported.
func TraverseSymlinks(on bool) GlobOption {
	return func(c *globConfig) { c.symlinks = on }
}

// WalkIntermediateDirs says whether directories that are only walked through
// reach the callback too (default false), and with them the errors of a fixed
// beginning that does not exist.
func WalkIntermediateDirs(on bool) GlobOption {
	return func(c *globConfig) { c.intermediate = on }
}

// Glob calls fn for every path that matches, in the order of [fs.WalkDir] and
// once per path. A path is relative when the pattern is, and clean.
//
// A directory or file that cannot be read or looked up reaches fn with the
// error, and the walk goes on with what is left; one that does not exist does
// so with [WalkIntermediateDirs] only. The first error fn returns ends the
// walk and is returned.
func (p *Pattern) Glob(fn fs.WalkDirFunc, opts ...GlobOption) error {
	return p.glob(context.Background(), fn, opts)
}

// MultiGlob walks the patterns one after the other, as [Pattern.Glob] does. A
// path that matches two patterns is reported twice. It stops between two
// directories when ctx is done, and returns its error.
func MultiGlob(ctx context.Context, patterns []*Pattern, fn fs.WalkDirFunc, opts ...GlobOption) error {
	for _, p := range patterns {
		if err := p.glob(ctx, fn, opts); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pattern) glob(ctx context.Context, fn fs.WalkDirFunc, opts []GlobOption) error {
	w := walker{ctx: ctx, pattern: p, fn: fn, seen: map[string]bool{}}
	for _, o := range opts {
		o(&w.conf)
	}
	roots := p.roots()
	for _, name := range slices.Sorted(maps.Keys(roots)) {
		if err := w.root(name, roots[name]); err != nil {
			return err
		}
	}
	return nil
}

// roots returns the fixed beginnings of the paths, clean, with the states to
// walk on from there: none where the path is fixed to its end.
func (p *Pattern) roots() map[string][]state {
	roots := map[string][]state{}
	for i, segs := range p.paths {
		if len(segs) == 1 && segs[0] == (segment{}) { // the empty choice of {,a}
			continue
		}
		pos := 0
		var fixed []string
		for pos < len(segs) && segs[pos].kind == literal {
			fixed = append(fixed, segs[pos].text)
			pos++
		}
		name := filepath.Clean(strings.Join(fixed, "/"))
		if len(fixed) == 1 && fixed[0] == "" {
			name = "/"
		}
		roots[name] = append(roots[name], state{i, pos})
	}
	return roots
}

// A walker is one walk of one pattern.
type walker struct {
	ctx     context.Context
	pattern *Pattern
	fn      fs.WalkDirFunc
	conf    globConfig
	seen    map[string]bool // reported paths, since roots may lie in one another
	above   []fs.FileInfo   // open directories, to see circles; empty without symlinks
}

// root looks a fixed beginning up and walks on from it.
func (w *walker) root(name string, at []state) error {
	info, err := os.Stat(name)
	if err != nil {
		return w.failed(name, nil, err)
	}
	onward := slices.DeleteFunc(slices.Clone(at), func(s state) bool {
		return s.pos == len(w.pattern.paths[s.path])
	})
	d := fs.FileInfoToDirEntry(info)
	if len(onward) < len(at) {
		if err := w.report(name, d); err != nil {
			return err
		}
	}
	if len(onward) == 0 || !info.IsDir() {
		return nil
	}
	return w.dir(name, d, onward)
}

// dir walks one directory, in the order of its entries' names.
func (w *walker) dir(path string, d fs.DirEntry, at []state) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if w.conf.intermediate {
		if err := w.report(path, d); err != nil {
			return err
		}
	}
	if w.conf.symlinks {
		info, err := os.Stat(path)
		if err != nil {
			return w.failed(path, d, err)
		}
		if slices.ContainsFunc(w.above, func(a fs.FileInfo) bool { return os.SameFile(a, info) }) {
			return nil
		}
		w.above = append(w.above, info)
		defer func() { w.above = w.above[:len(w.above)-1] }()
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		if err := w.failed(path, d, err); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := w.entry(filepath.Join(path, e.Name()), e, at); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(path string, d fs.DirEntry, at []state) error {
	final, next := w.pattern.step(at, d.Name())
	if final {
		if err := w.report(path, d); err != nil {
			return err
		}
	}
	if len(next) == 0 || !w.enterable(path, d) {
		return nil
	}
	return w.dir(path, d, next)
}

func (w *walker) enterable(path string, d fs.DirEntry) bool {
	if d.IsDir() {
		return true
	}
	if !w.conf.symlinks || d.Type()&fs.ModeSymlink == 0 {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (w *walker) report(path string, d fs.DirEntry) error {
	if w.seen[path] {
		return nil
	}
	w.seen[path] = true
	return w.fn(path, d, nil)
}

func (w *walker) failed(path string, d fs.DirEntry, err error) error {
	missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
	if missing && !w.conf.intermediate {
		return nil
	}
	return w.fn(path, d, err)
}
