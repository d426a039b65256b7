package runner

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// describeHost starts to find out what machine this is, and returns a function
// that adds it to a result at the end. Nothing else waits for it.
func describeHost(env []string) (join func(*schema.SystemInfo)) {
	found := make(chan schema.SystemInfo, 1)
	go func() { // reads a few files and ends; importing torch would take seconds
		var uts unix.Utsname
		unix.Uname(&uts)             // cannot fail with a valid pointer
		hostname, _ := os.Hostname() // unknown is empty
		found <- schema.SystemInfo{CPU: cpuModel(), Platform: platform(&uts, libc()), Torch: torchVersion(env), Hostname: hostname}
	}()
	return func(s *schema.SystemInfo) {
		host := <-found
		s.CPU, s.Platform, s.Torch, s.Hostname = host.CPU, host.Platform, host.Torch, host.Hostname
	}
}

// cpuModel is the last "model name" of /proc/cpuinfo, or the last "vendor_id"
// when a virtual machine hides the model.
func cpuModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	values := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		values[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	if model := values["model name"]; model != "unknown" {
		return model
	}
	return values["vendor_id"]
}

// torchVersion is the version of the torch that the python3 on PATH would
// import, as torch says it itself; "" when there is none.
func torchVersion(env []string) string {
	python, err := LookPath("python3", env)
	if err != nil {
		return ""
	}
	for _, dir := range packageDirs(python) {
		if _, err := os.Stat(filepath.Join(dir, "torch", "__init__.py")); err == nil {
			return installedVersion(dir, "torch")
		}
	}
	return ""
}

// packageDirs lists the directories of libraries that belong to an interpreter,
// in the order in which it searches them: a virtual environment's, what was
// added to the system by hand, what the system or a distribution brings.
func packageDirs(python string) []string {
	prefixes := []string{filepath.Dir(filepath.Dir(python))}
	real, err := filepath.EvalSymlinks(python)
	if err != nil {
		real = python
	}
	if config, err := os.ReadFile(filepath.Join(prefixes[0], "pyvenv.cfg")); err != nil || systemSite.Match(config) {
		if prefix := filepath.Dir(filepath.Dir(real)); prefix != prefixes[0] {
			prefixes = append(prefixes, prefix)
		}
		if at := slices.Index(prefixes, "/usr"); at >= 0 {
			prefixes = slices.Insert(prefixes, at, "/usr/local") // where Debian's pip installs
		}
	}
	versions := []string{"python3*"}
	if name := filepath.Base(real); strings.HasPrefix(name, "python3.") {
		versions = []string{name, "python3"} // Debian has one directory for all its interpreters
	}
	var dirs []string
	for _, prefix := range prefixes {
		for _, version := range versions {
			for _, place := range []string{"lib/" + version + "/site-packages", "lib64/" + version + "/site-packages", "lib/" + version + "/dist-packages"} {
				found, _ := filepath.Glob(filepath.Join(prefix, place))
				dirs = append(dirs, found...)
			}
		}
	}
	return dirs
}

// systemSite stands in the configuration of a virtual environment that sees the
// system's libraries.
var systemSite = regexp.MustCompile(`(?m)^include-system-site-packages\s*=\s*true\s*$`)

// installedVersion reads a package's version from its own version.py, which is
// what it says of itself ("2.5.1+cu124"), else from the name of what the
// installer left: pip's dist-info, a distribution's egg-info.
func installedVersion(dir, name string) string {
	if f, err := os.Open(filepath.Join(dir, name, "version.py")); err == nil {
		text, _ := io.ReadAll(io.LimitReader(f, 64<<10))
		f.Close()
		if found := ownVersion.FindSubmatch(text); found != nil {
			return string(found[1])
		}
	}
	for _, kind := range []string{".dist-info", ".egg-info"} {
		found, _ := filepath.Glob(filepath.Join(dir, name+"-*"+kind))
		for _, path := range found {
			return strings.TrimPrefix(strings.TrimSuffix(filepath.Base(path), kind), name+"-")
		}
	}
	return ""
}

// ownVersion is an assignment, with a type or without one.
var ownVersion = regexp.MustCompile(`(?m)^__version__(?:\s*:\s*\w+)?\s*=\s*['"]([^'"\\\s]{1,100})['"]`)

// platform is Python's platform.platform(): "Linux-6.1-x86_64-with-glibc2.36".
func platform(uts *unix.Utsname, libc string) string {
	parts := []string{unix.ByteSliceToString(uts.Sysname[:]), unix.ByteSliceToString(uts.Release[:]), unix.ByteSliceToString(uts.Machine[:])}
	if libc != "" {
		parts = append(parts, "with", libc)
	}
	text := strings.NewReplacer(" ", "_", "/", "-", `\`, "-", ":", "-", ";", "-", `"`, "-", "(", "-", ")", "-").Replace(strings.Join(parts, "-"))
	for strings.Contains(text, "--") {
		text = strings.ReplaceAll(text, "--", "-")
	}
	return strings.Trim(text, "-")
}

// libc is "glibc2.36", read from the C library's version text; "" without it.
func libc() string {
	for _, pattern := range []string{"/lib/*-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"} {
		found, _ := filepath.Glob(pattern)
		for _, file := range found {
			data, _ := os.ReadFile(file)
			if version := libcVersion.FindSubmatch(data); version != nil {
				return "glibc" + strings.Trim(string(version[1]), ".")
			}
		}
	}
	return ""
}

var libcVersion = regexp.MustCompile(`stable release version ([0-9.]*)`)
