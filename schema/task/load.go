package task

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// FileName is what a task's definition is called.
const FileName = "task.yml"

// ExtensionFile stands beside task.yml and holds the keys that are ours, in
// YAML, see [schema.Extension]. Kernelbot does not read it.
const ExtensionFile = "kbgen.yml"

// maxFile is the limit on one file of a task, in bytes.
const maxFile = 4 << 20

// LoadDir reads the task in a folder on disk, or the one whose task.yml is
// named. Files may lie anywhere its ../ lead.
func LoadDir(name string) (*Task, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		name = filepath.Join(name, FileName)
	}
	shown := filepath.ToSlash(name)
	// As the kernel would: ../ begins where the links lead.
	dir, err := filepath.EvalSymlinks(filepath.Dir(name))
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("reading task: %w", err)
	}
	root := filepath.VolumeName(dir) + string(filepath.Separator)
	inside, err := filepath.Rel(root, filepath.Join(dir, filepath.Base(name)))
	if err != nil {
		return nil, fmt.Errorf("reading task: %w", err)
	}
	return load(os.DirFS(root), filepath.ToSlash(inside), shown)
}

// Load reads the task in folder dir of fsys. Files may lie anywhere in fsys.
func Load(fsys fs.FS, dir string) (*Task, error) {
	name := path.Join(dir, FileName)
	return load(fsys, name, name)
}

func load(fsys fs.FS, name, shown string) (*Task, error) {
	data, err := readFile(fsys, name)
	if err != nil {
		return nil, fmt.Errorf("reading task %s: %w", shown, err)
	}
	beside, err := loadExtension(fsys, path.Dir(name), path.Join(path.Dir(shown), ExtensionFile))
	if err != nil {
		return nil, err
	}
	return parse(data, shown, beside, func(source string) (string, error) {
		if path.IsAbs(source) {
			return "", fmt.Errorf("got the path %q, want one relative to %s", source, FileName)
		}
		inside := path.Join(path.Dir(name), source)
		if !fs.ValidPath(inside) {
			return "", fmt.Errorf("got the path %q, which leads out of the tasks", source)
		}
		return readFile(fsys, inside)
	})
}

// loadExtension reads the [ExtensionFile] in dir, if there is one.
func loadExtension(fsys fs.FS, dir, shown string) (object, error) {
	data, err := readFile(fsys, path.Join(dir, ExtensionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading task %s: %w", shown, err)
	}
	return parseExtension(data, shown)
}

// readFile reads a text file as Python's read_text does: UTF-8, every kind of
// line end as \n.
func readFile(fsys fs.FS, name string) (string, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxFile {
		return "", fmt.Errorf("%s: more than %d bytes", path.Base(name), maxFile)
	}
	if !utf8.Valid(data) {
		return "", fmt.Errorf("%s: not UTF-8", path.Base(name))
	}
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data)), nil
}
