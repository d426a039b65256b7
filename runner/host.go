package runner

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// describeHost starts to find out what machine this is, and returns a function
// that adds it to a result at the end. Nothing else waits for it.
func describeHost(env []string) (join func(*schema.SystemInfo)) {
	found := make(chan schema.SystemInfo, 1)
	go func() { found <- hostInfo(env) }() // reads a few files and ends
	return func(s *schema.SystemInfo) {
		host := <-found
		s.CPU, s.Platform, s.Torch, s.Hostname = host.CPU, host.Platform, host.Torch, host.Hostname
	}
}

// hostInfo describes the machine without its devices and without importing
// torch, which would take seconds: its version is read from the installation
// beside python3.
func hostInfo(env []string) schema.SystemInfo {
	var uts unix.Utsname
	unix.Uname(&uts) // cannot fail with a valid pointer
	s := schema.SystemInfo{CPU: cpuModel(), Platform: platform(&uts, libc()), Torch: torchVersion(env)}
	s.Hostname, _ = os.Hostname() // unknown is empty
	return s
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

// torchVersion finds torch-<version>.dist-info in the library directories that
// belong to the python3 on PATH; "" when there is none.
func torchVersion(env []string) string {
	python, err := LookPath("python3", env)
	if err != nil {
		return ""
	}
	prefixes := []string{filepath.Dir(filepath.Dir(python))} // a virtual environment's link
	if real, err := filepath.EvalSymlinks(python); err == nil {
		prefixes = append(prefixes, filepath.Dir(filepath.Dir(real)))
	}
	prefixes = append(prefixes, "/usr/local") // where Debian's pip installs
	for _, prefix := range prefixes {
		for _, packages := range []string{"site-packages", "dist-packages"} {
			found, _ := filepath.Glob(filepath.Join(prefix, "lib", "python3*", packages, "torch-*.dist-info"))
			for _, dir := range found {
				return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "torch-"), ".dist-info")
			}
		}
	}
	return ""
}

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
	const mark = "stable release version "
	for _, pattern := range []string{"/lib/*-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"} {
		found, _ := filepath.Glob(pattern)
		for _, file := range found {
			if version, ok := after(file, mark); ok {
				return "glibc" + strings.Trim(version, ".")
			}
		}
	}
	return ""
}

// after returns the digits and dots that follow mark in a file, of which it
// keeps nothing in memory.
func after(file, mark string) (string, bool) {
	f, err := os.Open(file)
	if err != nil {
		return "", false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return "", false
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return "", false
	}
	defer unix.Munmap(data)
	_, rest, found := bytes.Cut(data, []byte(mark))
	end := bytes.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	return string(rest[:max(0, end)]), found
}
