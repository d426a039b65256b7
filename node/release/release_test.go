package release

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aead.dev/minisign"

	"github.com/gpu-mode/kbgen/node"
)

// A machine has a release's programs in usr/bin, and its sums.
type machine struct {
	dir, sums string
	key       string
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.path(name), []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{dir: t.TempDir()}
	list := ""
	for _, name := range []string{"kbgen", "kbnode", "kbrun", "kblocal"} {
		for _, arch := range []string{"amd64", "arm64"} {
			list += fmt.Sprintf("%x  kbgen_1.2.3_linux_%s/bin/%s\n", sha256.Sum256([]byte(name+arch)), arch, name)
		}
	}
	list += fmt.Sprintf("%x  kbgen_1.2.3_linux_arm64.tar.gz\n", sha256.Sum256(nil))
	m.write(t, "usr/bin/kbnode", "kbnodearm64")
	m.write(t, "usr/bin/kbrun", "kbrunarm64")
	m.write(t, "usr/bin/other", "the distribution's")
	m.write(t, "usr/lib/kbgen-node/kblocal", "kblocalarm64")
	public, secret, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	m.key, m.sums = public.String(), m.path("SHA256SUMS")
	m.write(t, "SHA256SUMS", list)
	m.write(t, "SHA256SUMS.minisig", string(minisign.SignWithComments(secret, []byte(list), "kbgen v1.2.3", "any")))
	return m
}

func TestProgramsOfTheReleasePass(t *testing.T) {
	m := newMachine(t)
	comment, programs, err := Verify(m.sums, m.key, m.path("usr/bin/kbnode"))
	want := []string{m.path("usr/bin/kbnode"), m.path("usr/lib/kbgen-node/kblocal"), m.path("usr/bin/kbrun")}
	if err != nil || comment != "kbgen v1.2.3" || !slices.Equal(programs, want) {
		t.Errorf("Verify = %q, %q, %v; want the programs %q", comment, programs, err, want)
	}
}

func TestChangedFilesAreNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*machine)
		want   string
	}{
		"kbnode":                 {func(m *machine) { m.write(t, "usr/bin/kbnode", "mine") }, "/usr/bin/kbnode: got SHA-256 "},
		"another program's name": {func(m *machine) { m.write(t, "usr/bin/kbrun", "kbgenarm64") }, "want that of kbrun in "},
		"kblocal of the package": {func(m *machine) { m.write(t, "usr/lib/kbgen-node/kblocal", "mine") }, "/usr/lib/kbgen-node/kblocal: got SHA-256 "},
		"sums": {func(m *machine) {
			m.write(t, "SHA256SUMS", fmt.Sprintf("%x  x/bin/kbnode\n", sha256.Sum256([]byte("mine"))))
		}, "got a wrong signature"},
		"no sums":               {func(m *machine) { m.sums = m.path("none") }, "no such file"},
		"no signature":          {func(m *machine) { os.Remove(m.sums + ".minisig") }, "the signature of "},
		"signature":             {func(m *machine) { m.write(t, "SHA256SUMS.minisig", "RW") }, "got no minisign signature"},
		"key":                   {func(m *machine) { m.key = newMachine(t).key }, "got a signature of key "},
		"a key of another kind": {func(m *machine) { m.key = "none" }, `--key: got "none", want a minisign public key`},
		"sums of nothing":       {func(m *machine) { *m = *signedEmpty(t) }, "got no program kbnode"},
	} {
		m := newMachine(t)
		tt.change(m)
		_, _, err := Verify(m.sums, m.key, m.path("usr/bin/kbnode"))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s changed: Verify: %v, want %q", name, err, tt.want)
		}
		if usage := new(node.UsageError); errors.As(err, &usage) != (name == "a key of another kind") {
			t.Errorf("%s changed: Verify: %v is wrong usage", name, err)
		}
	}
}

// signedEmpty has a signature of no sums.
func signedEmpty(t *testing.T) *machine {
	m := newMachine(t)
	public, secret, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	m.key = public.String()
	m.write(t, "SHA256SUMS", "")
	m.write(t, "SHA256SUMS.minisig", string(minisign.Sign(secret, nil)))
	return m
}
