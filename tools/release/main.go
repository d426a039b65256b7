// Release builds what a version of kbgen consists of, for Linux on amd64 and
// arm64: binaries, completions, man pages, archives, packages, for each
// architecture a bill of materials (CycloneDX) and the provenance (in-toto, SLSA),
// and the sums of all. The same commit gives the same bytes, wherever and whenever
// it is built with the same Go and C compilers.
//
//	go run . --version v1.2.3 --out DIR
//
// SHA256SUMS has the programs inside the archives as well, by their paths once the
// archives are unpacked. It is signed if KBGEN_RELEASE_KEY names a minisign secret
// key; KBGEN_RELEASE_PASSWORD decrypts one that is encrypted.
//
// kbrun with NVML is linked with the machine's C library, so it is built for
// this machine's architecture, and for the other one where a cross compiler is
// (aarch64-linux-gnu-gcc). Build on the oldest distribution that has to run it;
// what it was built on and which C library it needs is printed and stands in
// the archive.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"aead.dev/minisign"
)

func main() {
	version := flag.String("version", "", "the version, as in v1.2.3 or v1.2.3-rc.1")
	root := flag.String("root", "../..", "the repository")
	out := flag.String("out", "../../dist", "where the release is put; replaced when it is there")
	flag.Parse()
	key, err := signingKey(os.Getenv("KBGEN_RELEASE_KEY"), os.Getenv("KBGEN_RELEASE_PASSWORD"))
	if err == nil {
		err = run(*root, *out, *version, architectures, key, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: error: %v\n", err)
		os.Exit(1)
	}
}

// A release is what is being made.
type release struct {
	root, out string
	version   string // "v1.2.3"
	archs     []string
	commit    string
	date      time.Time            // of the commit: the age of every file in it
	key       *minisign.PrivateKey // nil: the sums are not signed
	log       io.Writer

	made     []string // files of the architecture in hand
	programs []sum    // those inside all archives
}

// architectures are those of a release, as Go names them.
var architectures = []string{"amd64", "arm64"}

// run makes the release for archs, among which this machine's must be.
func run(root, out, version string, archs []string, key *minisign.PrivateKey, log io.Writer) (err error) {
	r := &release{version: version, archs: archs, key: key, log: log}
	if r.root, err = filepath.Abs(root); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := r.checkVersion(); err != nil {
		return err
	}
	if err := r.readCommit(); err != nil {
		return err
	}
	// Everything is made beside the place and put there whole.
	made := r.out + ".making"
	if err := errors.Join(os.RemoveAll(made), os.MkdirAll(made, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(made)
	final := r.out
	r.out = made
	if err := r.make(); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(final), os.Rename(made, final))
}

func (r *release) make() error {
	stage := filepath.Join(r.out, "stage")
	for _, arch := range r.archs {
		if err := r.build(filepath.Join(stage, arch), arch); err != nil {
			return err
		}
	}
	shared := filepath.Join(stage, "shared")
	if err := r.describe(shared, filepath.Join(stage, runtime.GOARCH)); err != nil {
		return err
	}
	for _, arch := range r.archs {
		bin := filepath.Join(stage, arch)
		r.made = nil
		if err := r.archive(bin, shared, arch); err != nil {
			return err
		}
		if err := r.packages(bin, shared, arch); err != nil {
			return err
		}
		if err := r.attest(bin, arch); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(stage); err != nil {
		return err
	}
	return r.sums()
}

var versionForm = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$`)

// checkVersion wants a version of semver's form, and for one without a suffix
// its section in CHANGELOG.md: what people read before they upgrade.
func (r *release) checkVersion() error {
	m := versionForm.FindStringSubmatch(r.version)
	if m == nil {
		return fmt.Errorf("--version: got %q, want one as in v1.2.3 or v1.2.3-rc.1", r.version)
	}
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if heading := "## " + r.version; m[4] == "" && !slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
		return line == heading || strings.HasPrefix(line, heading+" ")
	}) {
		return fmt.Errorf("CHANGELOG.md: no section %q, want one that says what is new", heading)
	}
	return nil
}

// A sum is the SHA-256 of a file.
type sum struct{ name, sha256 string }

func sumOf(path, name string) (sum, error) {
	data, err := os.ReadFile(path)
	hash := sha256.Sum256(data)
	return sum{name, hex.EncodeToString(hash[:])}, err
}

// sums writes SHA256SUMS over everything that was made and the programs in it, and
// signs it if there is a key.
func (r *release) sums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var all []sum
	for _, e := range entries {
		s, err := sumOf(filepath.Join(r.out, e.Name()), e.Name())
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		all = append(all, s)
		fmt.Fprintf(r.log, "%8.1f MB  %s\n", float64(info.Size())/1e6, e.Name())
	}
	var list strings.Builder
	for _, s := range append(all, r.programs...) {
		fmt.Fprintf(&list, "%s  %s\n", s.sha256, s.name)
	}
	path := filepath.Join(r.out, "SHA256SUMS")
	if err := os.WriteFile(path, []byte(list.String()), 0o644); err != nil || r.key == nil {
		return err
	}
	return os.WriteFile(path+".minisig", r.sign(list.String()), 0o644)
}
