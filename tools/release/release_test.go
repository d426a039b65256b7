package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"aead.dev/minisign"
)

const testVersion = "v0.0.1-test.1"

func TestVersions(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte("# Changelog\n\n## v1.2.3 (2026-01-02)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{
		"v1.2.3": "", "v9.9.9-rc.1": "", // what is tried out needs no section
		"v1.2.4": `no section "## v1.2.4"`, "v1.2": "want one as in v1.2.3", "1.2.3": "want one as in", "v01.2.3": "want one as in", "v1.2.3 -X": "want one as in", "": "want one as in",
	} {
		err := (&release{root: root, version: version}).checkVersion()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("checkVersion(%q) = %v, want %q", version, err, want)
		}
	}
}

// TestSlowRelease makes the release of one commit, and in another place with an
// empty build cache the part for this machine, which must be the same to the byte.
// The packages install and run.
func TestSlowRelease(t *testing.T) {
	if os.Getenv("KBGEN_SLOW_TESTS") != "1" {
		t.Skip("slow test, run: make test-slow")
	}
	dir := t.TempDir()
	place := filepath.Join(dir, "first")
	public, key := newKey(t)
	encrypted, err := minisign.EncryptKey("password", *key)
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "release.key")
	if err := os.WriteFile(secret, encrypted, 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err = signingKey(secret, "password"); err != nil {
		t.Fatal(err)
	}
	first := makeRelease(t, "../..", place, architectures, key)
	sums := read(t, filepath.Join(first, "SHA256SUMS"))
	other := filepath.Join(dir, "a", "longer", "second")
	t.Run("again", func(t *testing.T) {
		t.Setenv("GOCACHE", filepath.Join(other, ".cache"))
		second := makeRelease(t, place, other, []string{runtime.GOARCH}, nil)
		for line := range strings.Lines(read(t, filepath.Join(second, "SHA256SUMS"))) {
			if !strings.Contains(sums, line) {
				t.Errorf("two builds of one commit differ: %s, not in\n%s", line, sums)
			}
		}
	})
	if !minisign.Verify(public, []byte(sums), []byte(read(t, filepath.Join(first, "SHA256SUMS.minisig")))) {
		t.Error("the signature of SHA256SUMS is wrong")
	}
	for _, want := range []string{
		"kbgen_0.0.1-test.1_linux_arm64.tar.gz", "kbgen_0.0.1-test.1_linux_arm64.cdx.json", "kbgen_0.0.1-test.1_linux_amd64.intoto.json", "kbgen_0.0.1-test.1_linux_amd64/bin/kbnode",
		"kbgen-node_0.0.1~test.1_amd64.deb", "kbgen-tools-0.0.1~test.1-1.aarch64.rpm",
	} {
		if !strings.Contains(sums, "  "+want+"\n") {
			t.Errorf("SHA256SUMS lacks %s:\n%s", want, sums)
		}
	}
	for _, arch := range architectures { // the sums have what is in the archives
		unpack := exec.Command("tar", "--extract", "--file", "kbgen_0.0.1-test.1_linux_"+arch+".tar.gz")
		unpack.Dir = first
		if out, err := unpack.CombinedOutput(); err != nil {
			t.Fatalf("tar: %v\n%s", err, out)
		}
	}
	checkAttested(t, first, "kbgen_0.0.1-test.1_linux_"+runtime.GOARCH, "github.com/alecthomas/kong", "kbnode")
	check := exec.Command("sha256sum", "--check", "--quiet", "SHA256SUMS")
	check.Dir = first
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum --check: %v\n%s", err, out)
	}
	debs, err := filepath.Glob(filepath.Join(first, "*_"+runtime.GOARCH+".deb"))
	if err != nil || len(debs) != 2 {
		t.Fatalf("packages for this machine: %q, %v", debs, err)
	}
	t.Run("unpacked", func(t *testing.T) { unpacked(t, debs) })
	t.Run("installed", func(t *testing.T) { installed(t, debs) })
	t.Run("rpm", func(t *testing.T) { queried(t, first) })
}

// makeRelease builds the release of the last commit in a clone of its own.
func makeRelease(t *testing.T, from, place string, archs []string, key *minisign.PrivateKey) string {
	t.Helper()
	clone := exec.Command("git", "clone", "--quiet", from, place)
	if out, err := clone.CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v\n%s", err, out)
	}
	var log bytes.Buffer
	out := filepath.Join(place, "dist")
	if err := run(place, out, testVersion, archs, key, io.MultiWriter(&log, testLog{t})); err != nil {
		t.Fatalf("release: %v\n%s", err, log.String())
	}
	if !regexp.MustCompile(`kbrun-nvml for \w+: built on .+, needs glibc 2\.\d+ or newer\n`).MatchString(log.String()) {
		t.Errorf("the build does not say what kbrun-nvml was built on:\n%s", log.String())
	}
	return out
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// versions runs every command of the packages, through what runs a command of
// the place, and wants its version.
func versions(t *testing.T, bin string, run func(name string) ([]byte, error)) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(bin, "kb*"))
	if err != nil || len(found) < 5 {
		t.Fatalf("commands in %s: %q, %v", bin, found, err)
	}
	for _, path := range found {
		name := filepath.Base(path)
		want := strings.TrimSuffix(name, "-nvml") + " " + testVersion + "\n"
		if out, err := run(name); err != nil || string(out) != want {
			t.Errorf("%s --version prints %q (%v), want %q", name, out, err, want)
		}
	}
}

func unpacked(t *testing.T, debs []string) {
	root := t.TempDir()
	for _, deb := range debs {
		if out, err := exec.Command("dpkg-deb", "--extract", deb, root).CombinedOutput(); err != nil {
			t.Fatalf("dpkg-deb: %v\n%s", err, out)
		}
	}
	bin := filepath.Join(root, "usr", "bin")
	versions(t, bin, func(name string) ([]byte, error) {
		return exec.Command(filepath.Join(bin, name), "--version").CombinedOutput()
	})
	for _, path := range []string{"usr/share/man/man1/kbgen.1", "usr/share/bash-completion/completions/kblaunch", "usr/share/doc/kbgen-node/kbrun-nvml.txt", "usr/lib/kbgen-node/kblocal", "usr/share/doc/kbgen-tools/CHANGELOG.md"} {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Error(err)
		}
	}
}

// installed installs the packages in a fresh Debian, whose mirror is the one
// that this machine's own apt uses.
func installed(t *testing.T, debs []string) {
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: needs root, for debootstrap and chroot")
	}
	if _, err := exec.LookPath("debootstrap"); err != nil {
		t.Skip("NOT RUN: needs the package debootstrap")
	}
	root := filepath.Join(t.TempDir(), "root")
	if out, err := exec.Command("sh", "../../templates/runner/rootfs.sh", "--directory", root).CombinedOutput(); err != nil {
		t.Fatalf("rootfs.sh: %v\n%s", err, out)
	}
	args := []string{root, "dpkg", "--install"}
	for _, deb := range debs {
		if err := os.WriteFile(filepath.Join(root, "tmp", filepath.Base(deb)), []byte(read(t, deb)), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, "/tmp/"+filepath.Base(deb))
	}
	if out, err := exec.Command("chroot", args...).CombinedOutput(); err != nil {
		t.Fatalf("dpkg --install: %v\n%s", err, out)
	}
	versions(t, filepath.Join(root, "usr", "bin"), func(name string) ([]byte, error) {
		return exec.Command("chroot", root, "/usr/bin/"+name, "--version").CombinedOutput()
	})
	if out, err := exec.Command("chroot", root, "dpkg", "--purge", "kbgen-node", "kbgen-tools").CombinedOutput(); err != nil {
		t.Errorf("dpkg --purge: %v\n%s", err, out)
	}
	if left, _ := filepath.Glob(filepath.Join(root, "usr", "bin", "kb*")); len(left) > 0 {
		t.Errorf("purged packages leave %q", left)
	}
}

func queried(t *testing.T, dir string) {
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Skip("NOT RUN: needs the package rpm")
	}
	rpms, err := filepath.Glob(filepath.Join(dir, "kbgen-node-*.x86_64.rpm"))
	if err != nil || len(rpms) != 1 {
		t.Fatalf("rpm of the node: %q, %v", rpms, err)
	}
	out, err := exec.Command("rpm", "--query", "--list", "--package", rpms[0]).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "/usr/bin/kbrun-nvml\n") {
		t.Errorf("rpm --query --list: %v\n%s", err, out)
	}
	if out, err := exec.Command("rpm", "--checksig", "--nosignature", rpms[0]).CombinedOutput(); err != nil {
		t.Errorf("rpm --checksig: %v\n%s", err, out)
	}
}
