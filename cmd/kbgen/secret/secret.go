// Package secret is kbgen secret: it seals values for the vendors' nodes, opens
// and renews them.
package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/inventory"
)

// exitFindings is the exit status of an audit or a lint that found something,
// as of kbgen check.
const exitFindings = 3

// Commands is the grammar of kbgen secret.
type Commands struct {
	Get     getCmd     `cmd:""`
	Hook    hookCmd    `cmd:""`
	Keygen  keygenCmd  `cmd:""`
	Encrypt encryptCmd `cmd:""`
	Decrypt decryptCmd `cmd:""`
	Rekey   rekeyCmd   `cmd:""`
	Audit   auditCmd   `cmd:""`
	Migrate migrateCmd `cmd:""`
	Lint    lintCmd    `cmd:""`
}

// New returns the commands, for which it is as late as now says.
func New(now func() time.Time) Commands {
	return Commands{
		Keygen: keygenCmd{now: now}, Encrypt: encryptCmd{now: now}, Decrypt: decryptCmd{now: now},
		Rekey: rekeyCmd{now: now}, Audit: auditCmd{now: now}, Migrate: migrateCmd{now: now},
	}
}

// maxFile bounds what is read of any file, bytes.
const maxFile = 8 << 20

// readFile reads a file, or standard input for "-".
func readFile(env *cli.Env, name string) ([]byte, error) {
	return cli.ReadInput(env.Stdin, name, maxFile)
}

// writeFile puts a file in place at once, so that nobody ever reads half of it.
// A file that is there keeps its mode.
func writeFile(name string, content []byte, mode fs.FileMode) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	} else if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := renameio.WriteFile(name, content, mode, renameio.WithExistingPermissions()); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// readKeys reads the private keys of all files, and cryptic's key of a
// repository if there is a file of it.
func readKeys(env *cli.Env, files []string, repository string) (inventory.Keys, error) {
	var all inventory.Keys
	for _, name := range files {
		text, err := readFile(env, name)
		if err != nil {
			return all, &cli.UsageError{Err: err}
		}
		keys, err := secrets.ParsePrivateKeys(text)
		if err != nil {
			return all, cli.Usagef("%s: %w", name, err)
		}
		all.Private = append(all.Private, keys...)
	}
	if repository == "" {
		return all, nil
	}
	sealed, err := readFile(env, repository)
	if err != nil {
		return all, &cli.UsageError{Err: err}
	}
	if err := all.AddRepository(sealed); err != nil {
		return all, fmt.Errorf("%s: %w", repository, err)
	}
	return all, nil
}

// scan finds the sealed values of a store or of a pipeline.
func scan(env *cli.Env, file string) ([]inventory.Value, error) {
	content, err := readFile(env, file)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	all, err := inventory.Scan(file, content)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return all, nil
}

// readStore reads a store file; with orNew, one that is not there is empty.
func readStore(env *cli.Env, name string, orNew bool) (*secrets.Store, error) {
	text, err := readFile(env, name)
	if errors.Is(err, fs.ErrNotExist) && orNew {
		return secrets.NewStore(), nil
	}
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	s, err := secrets.ParseStore(text)
	if err != nil {
		return nil, cli.Usagef("%s: %w", name, err)
	}
	return s, nil
}

func writeStore(name string, s *secrets.Store) error {
	text, err := s.Encode()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return writeFile(name, text, 0o644)
}
