// Package release checks that the programs of a machine are those of a signed
// release of kbgen. It fetches nothing.
package release

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"aead.dev/minisign"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/apply"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Verify checks the signature of a release's SHA256SUMS, FILE.minisig, with a minisign
// public key. Then it checks that kbnode, at self, and the release's other programs
// beside it are listed there. It returns the signature's comment, which names the
// version, and the programs that it checked.
//
// Errors: *[node.UsageError] if key is not a minisign public key.
func Verify(file, key, self string) (comment string, programs []string, err error) {
	var public minisign.PublicKey
	if err := public.UnmarshalText([]byte(key)); err != nil {
		return "", nil, node.Usagef("--key: got %s, want a minisign public key, which begins with RW", text.Quote(key))
	}
	list, err := os.ReadFile(file)
	if err != nil {
		return "", nil, err
	}
	if comment, err = signed(file, list, public); err != nil {
		return "", nil, err
	}
	sums := programSums(string(list))
	if sums["kbnode"] == nil {
		return "", nil, fmt.Errorf("%s: got no program kbnode, want the sums of a release for Linux", file)
	}
	var faults []error
	check := func(name, program string) error {
		sum, err := apply.HashFile(program)
		if err == nil && !slices.Contains(sums[name], sum) {
			err = fmt.Errorf("%s: got SHA-256 %s, want that of %s in %s: it is not of this release", program, sum, name, file)
		}
		if err == nil {
			programs = append(programs, program)
		}
		return err
	}
	faults = append(faults, check("kbnode", self))
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		// The package for nodes has kblocal in a directory of its own.
		for _, dir := range []string{".", "../lib/kbgen-node"} {
			program := filepath.Join(filepath.Dir(self), dir, name)
			if program == self {
				continue
			}
			if err := check(name, program); !errors.Is(err, fs.ErrNotExist) {
				faults = append(faults, err)
			}
		}
	}
	return comment, programs, errors.Join(faults...)
}

// signed returns the comment of a file's signature.
func signed(file string, content []byte, public minisign.PublicKey) (string, error) {
	raw, err := os.ReadFile(file + ".minisig")
	if err != nil {
		return "", fmt.Errorf("the signature of %s: %w", file, err)
	}
	var s minisign.Signature
	switch err := s.UnmarshalText(bytes.TrimSpace(raw)); {
	case err != nil:
		return "", fmt.Errorf("%s.minisig: got no minisign signature: %w", file, err)
	case s.KeyID != public.ID():
		return "", fmt.Errorf("%s.minisig: got a signature of key %X, want one of key %X, which --key names", file, s.KeyID, public.ID())
	case !minisign.Verify(public, content, bytes.TrimSpace(raw)):
		return "", fmt.Errorf("%s: got a wrong signature: the file was changed, or is another release's", file)
	}
	return text.Line(s.TrustedComment, 200), nil
}

// programSums returns the sums of a release's programs, by name; each architecture
// has one.
func programSums(list string) map[string][]string {
	sums := map[string][]string{}
	for line := range strings.Lines(list) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if path.Base(path.Dir(file)) == "bin" {
			sums[path.Base(file)] = append(sums[path.Base(file)], sum)
		}
	}
	return sums
}
