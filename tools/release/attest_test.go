package main

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/CycloneDX/cyclonedx-go"
	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

func newKey(t *testing.T) (minisign.PublicKey, *minisign.PrivateKey) {
	t.Helper()
	public, key, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return public, &key
}

// attested is a release whose only program is this test.
func attested(t *testing.T, key *minisign.PrivateKey) *release {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &release{
		root: "../..", out: t.TempDir(), version: testVersion, commit: strings.Repeat("c0", 20), date: time.Unix(1_700_000_000, 0).UTC(), key: key, log: testLog{t},
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "kbtest")); err != nil {
		t.Fatal(err)
	}
	f, err := r.create("package.deb")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.attest(bin, "amd64"); err != nil {
		t.Fatal(err)
	}
	if err := r.sums(); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAttestationsNameFilesAndModules(t *testing.T) {
	public, key := newKey(t)
	r := attested(t, key)
	checkAttested(t, r.out, r.name("amd64"), "github.com/goreleaser/nfpm/v2", "kbtest")
	sums, signature := read(t, filepath.Join(r.out, "SHA256SUMS")), read(t, filepath.Join(r.out, "SHA256SUMS.minisig"))
	if !minisign.Verify(public, []byte(sums), []byte(signature)) || !strings.Contains(signature, "timestamp:1700000000\tfile:SHA256SUMS\tkbgen "+testVersion+"\n") {
		t.Errorf("the signature does not fit, or not say the commit's date:\n%s", signature)
	}
	for _, name := range []string{"package.deb", r.name("amd64") + ".cdx.json", r.name("amd64") + ".intoto.json", r.name("amd64") + "/bin/kbtest"} {
		if !strings.Contains(sums, "  "+name+"\n") {
			t.Errorf("SHA256SUMS lacks %s:\n%s", name, sums)
		}
	}
	again := attested(t, key)
	for _, name := range []string{"SHA256SUMS", "SHA256SUMS.minisig"} {
		if first, second := read(t, filepath.Join(r.out, name)), read(t, filepath.Join(again.out, name)); first != second {
			t.Errorf("%s differs the second time:\n%s\n%s", name, first, second)
		}
	}
}

// checkAttested checks an architecture's bill of materials and provenance: the
// module is linked into the program, and the digests are those of SHA256SUMS.
func checkAttested(t *testing.T, dir, name, module, program string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, name+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(f, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(*bom.Components, func(c cyclonedx.Component) bool { return c.Name == module })
	if at < 0 {
		t.Fatalf("the bill of materials lacks %s", module)
	}
	c := (*bom.Components)[at]
	if c.PackageURL != "pkg:golang/"+module+"@"+c.Version || c.Hashes == nil || len((*c.Hashes)[0].Value) != 64 {
		t.Errorf("component %+v, want a package URL with version, and a hash", c)
	}
	if !slices.ContainsFunc(*bom.Dependencies, func(d cyclonedx.Dependency) bool {
		return d.Ref == name+"/bin/"+program && slices.Contains(*d.Dependencies, c.BOMRef) &&
			slices.ContainsFunc(*d.Dependencies, func(ref string) bool { return strings.HasPrefix(ref, "pkg:golang/stdlib@1.") })
	}) {
		t.Errorf("%s is not linked with %s and the standard library", program, module)
	}

	statement, made := &intoto.Statement{}, &provenance.Provenance{}
	if err := protojson.Unmarshal([]byte(read(t, filepath.Join(dir, name+".intoto.json"))), statement); err != nil {
		t.Fatal(err)
	}
	predicate, err := protojson.Marshal(statement.Predicate)
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(predicate, made); err != nil {
		t.Fatal(err)
	}
	if err := statement.Validate(); err != nil {
		t.Error(err)
	}
	if err := made.Validate(); err != nil {
		t.Error(err)
	}
	if got := made.BuildDefinition.ExternalParameters.Fields["version"].GetStringValue(); got != testVersion {
		t.Errorf("provenance of version %q, want %s", got, testVersion)
	}
	sums := read(t, filepath.Join(dir, "SHA256SUMS"))
	for _, s := range statement.Subject {
		if !strings.Contains(sums, s.Digest["sha256"]+"  "+s.Name+"\n") {
			t.Errorf("subject %s with digest %s is not in SHA256SUMS", s.Name, s.Digest["sha256"])
		}
	}
	if len(statement.Subject) < 3 {
		t.Errorf("%d subjects, want packages, bill of materials and programs", len(statement.Subject))
	}
}

func TestChangedFilesAreRefused(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "a.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	git("init", "--quiet")
	git("add", "a.go")
	git("commit", "--quiet", "--message=one")
	r := &release{root: root}
	if err := r.readCommit(); err != nil || len(r.commit) != 40 || r.date.IsZero() {
		t.Errorf("readCommit: %v; commit %q of %v", err, r.commit, r.date)
	}
	write("two")
	if err := r.readCommit(); err == nil || !strings.Contains(err.Error(), "got changed files") {
		t.Errorf("readCommit with a changed file: %v, want an error", err)
	}
}

func TestSigningKeys(t *testing.T) {
	_, key := newKey(t)
	plain, err := key.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "release.key")
	for content, want := range map[string]string{string(plain): "", string(plain) + "\n": "", "public": "want a minisign secret key"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := signingKey(path, "")
		if want == "" && (err != nil || !got.Equal(*key)) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("signingKey: %v, want %q", err, want)
		}
	}
	if got, err := signingKey("", ""); got != nil || err != nil {
		t.Errorf("signingKey without a file: %v, %v; want none", got, err)
	}
	if _, err := signingKey(path+".none", ""); err == nil || !strings.Contains(err.Error(), "KBGEN_RELEASE_KEY: open ") {
		t.Errorf("signingKey of a missing file: %v", err)
	}
}
