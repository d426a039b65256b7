package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kinds of mount.
const (
	kindRead   = "read"   // a tree, read-only
	kindWrite  = "write"  // a tree
	kindDevice = "device" // one device node
	kindLink   = "link"   // a symbolic link to Source
	kindHide   = "hide"   // an empty directory or file over what is there
	kindTmpfs  = "tmpfs"
	kindProc   = "proc"
	kindPts    = "pts"
)

// A mount is one entry of the sandbox's file system.
type mount struct {
	Kind   string
	Source string `json:",omitempty"` // absolute, without links
	Target string // absolute, as the submission sees it
	Data   string `json:",omitempty"`
}

// systemRoots lists what every program may need; what is missing is left out.
var systemRoots = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/sys", "/run/opengl-driver"}

// hidden lists what lies below the system's directories and is nobody's
// business but the machine's.
var hidden = []string{
	"/etc/buildkite-agent", "/etc/ssh", "/etc/ssl/private", "/etc/docker", "/etc/kubernetes",
	"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d",
	"/usr/local/etc/buildkite-agent", "/opt/buildkite-agent",
}

// system lists the mounts that all processes of the job share, parents first.
func (s *Sandbox) system() []mount {
	var list []mount
	for _, root := range systemRoots {
		info, err := os.Lstat(root)
		switch {
		case err != nil:
		case info.Mode()&os.ModeSymlink != 0:
			if to, err := os.Readlink(root); err == nil {
				list = append(list, mount{Kind: kindLink, Source: to, Target: root})
			}
		default:
			list = append(list, mount{Kind: kindRead, Source: root, Target: root})
		}
	}
	for _, path := range s.reads() {
		list = append(list, readMounts(path, list)...)
	}
	for _, path := range slices.Concat(hidden, s.o.Hide) {
		if real, err := filepath.EvalSymlinks(path); err == nil && filepath.IsAbs(path) && filepath.Dir(real) != "/" {
			list = append(list, mount{Kind: kindHide, Target: real})
		}
	}
	if s.id.Own {
		for _, name := range []string{"passwd", "group"} {
			list = append(list, mount{Kind: kindRead, Source: filepath.Join(s.o.Dir, name), Target: "/etc/" + name})
		}
	}
	size := fmt.Sprintf("mode=1777,size=%d", s.o.Limits.Memory/2)
	list = append(list, // the sandbox's own empty places
		mount{Kind: kindTmpfs, Target: "/tmp", Data: size},
		mount{Kind: kindTmpfs, Target: "/dev/shm", Data: size},
		mount{Kind: kindProc, Target: "/proc"},
		mount{Kind: kindLink, Source: "/tmp", Target: "/var/tmp"},
	)
	return append(list, devices()...)
}

func devices() []mount {
	list := []mount{
		{Kind: kindPts, Target: "/dev/pts"},
		{Kind: kindLink, Source: "pts/ptmx", Target: "/dev/ptmx"},
		{Kind: kindLink, Source: "/proc/self/fd", Target: "/dev/fd"},
		{Kind: kindLink, Source: "/proc/self/fd/0", Target: "/dev/stdin"},
		{Kind: kindLink, Source: "/proc/self/fd/1", Target: "/dev/stdout"},
		{Kind: kindLink, Source: "/proc/self/fd/2", Target: "/dev/stderr"},
	}
	for _, path := range slices.Concat(plainDevices, gpuDevices()) {
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case info.IsDir():
			list = append(list, mount{Kind: kindRead, Source: path, Target: path})
		default:
			list = append(list, mount{Kind: kindDevice, Source: path, Target: path})
		}
	}
	return list
}

var plainDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// readMounts makes path readable unless something in list does so already.
func readMounts(path string, list []mount) []mount {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || covered(real, list) {
		return nil
	}
	add := []mount{{Kind: kindRead, Source: real, Target: real}}
	if real != path && !covered(path, list) {
		add = append(add, mount{Kind: kindLink, Source: real, Target: path})
	}
	return add
}

func covered(path string, list []mount) bool {
	return slices.ContainsFunc(list, func(m mount) bool { return m.Kind == kindRead && below(path, m.Target) })
}

func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// reads lists what lies outside of the system's directories and was asked for,
// or is needed to run programs: the directories of PATH and its like, and the
// installations that python3 and nvcc belong to.
func (s *Sandbox) reads() []string {
	vars := map[string]string{}
	for _, pair := range s.o.Environ {
		name, value, _ := strings.Cut(pair, "=")
		vars[name] = value
	}
	var paths []string
	path := filepath.SplitList(vars["PATH"])
	for _, name := range []string{"python3", "nvcc", "hipcc"} {
		paths = append(paths, installation(name, path)...)
	}
	paths = append(paths, path...)
	for _, name := range []string{"LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CUTLASS_PATH"} {
		paths = append(paths, filepath.SplitList(vars[name])...)
	}
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "ROCM_HOME"} {
		paths = append(paths, vars[name])
	}
	paths = slices.DeleteFunc(paths, func(p string) bool {
		return !filepath.IsAbs(p) || tooMuch(filepath.Clean(p), vars["HOME"])
	})
	return append(slices.Clone(s.o.Read), paths...)
}

// tooMuch keeps a careless PATH from opening a whole home, or the system's
// top-level directories.
func tooMuch(path, home string) bool {
	return path == "/" || filepath.Dir(path) == "/" || path == home || filepath.Dir(path) == "/home" ||
		below(path, "/proc") || below(path, "/dev") || home != "" && below(home, path)
}

// installation finds the directories that a program on the path needs beside
// itself: the one it really lies in and the one it is linked from (a virtual
// environment), if they look like the root of an installation.
func installation(name string, path []string) []string {
	for _, dir := range path {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		roots := []string{filepath.Dir(dir)}
		if real, err := filepath.EvalSymlinks(file); err == nil {
			roots = append(roots, filepath.Dir(filepath.Dir(real)))
		}
		return slices.DeleteFunc(roots, func(root string) bool {
			for _, mark := range []string{"lib/python3*", "pyvenv.cfg", "versions", "nvvm", "include/cuda.h", "include/hip"} {
				if found, _ := filepath.Glob(filepath.Join(root, mark)); len(found) > 0 {
					return false
				}
			}
			return true
		})
	}
	return nil
}
