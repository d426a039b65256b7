package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

// migrateCmd makes a store of the values that pipelines hold in the old formats.
type migrateCmd struct {
	Files         []string `arg:"" name:"file"`
	Key           []string `required:"" placeholder:"FILE"`
	RepositoryKey string   `name:"repository-key" placeholder:"FILE"`
	Store         string   `default:".buildkite/secrets.kb.yaml" placeholder:"FILE"`
	bindingFlags
	sealingFlags

	now clock
}

func (c *migrateCmd) Run(_ context.Context, env *cli.Env) error {
	keys, err := privateKeys(env, c.Key)
	if err != nil {
		return err
	}
	repository, err := repositoryKey(env, keys, c.RepositoryKey)
	if err != nil {
		return err
	}
	sealer, err := c.sealer(env, c.now())
	if err != nil {
		return err
	}
	store, err := readStore(env, c.Store, true)
	if err != nil {
		return err
	}
	var faults []error
	var report []string
	done := map[string]string{} // where each name was found, and its value
	values := map[string]string{}
	for _, file := range c.Files {
		texts, err := scan(env, file)
		if err != nil {
			return err
		}
		for _, t := range texts {
			if t.format == "kbsec1" {
				continue
			}
			v, err := openLegacy(keys, repository, t.text)
			if err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", t, err))
				continue
			}
			if first, again := done[t.name]; again {
				if values[t.name] != string(v.Text) {
					faults = append(faults, fmt.Errorf("%s: got another value than %s has, want one of them under another name", t, first))
				}
				continue
			}
			if _, there := store.Lookup(t.name); there {
				faults = append(faults, fmt.Errorf("%s: %s has it already", t, c.Store))
				continue
			}
			secret, text, err := sealer.seal(t.name, v.Text, c.binding())
			if err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", t, err))
				continue
			}
			store.Set(secret, text)
			done[t.name], values[t.name] = fmt.Sprintf("%s:%d", t.file, t.line), string(v.Text)
			report = append(report, fmt.Sprintf("%s: %s, now in %s%s", t, v.Format, c.Store, weakness(v)))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return cli.WithHint(err, "nothing was written")
	}
	if len(done) == 0 {
		return cli.Usagef("got no value in an old format in %d files", len(c.Files))
	}
	if err := writeStore(c.Store, store); err != nil {
		return err
	}
	for _, line := range report {
		fmt.Fprintln(env.Stdout, line)
	}
	fmt.Fprintf(env.Stderr, "kbgen-secret: %s: %d added, sealed for %s; now take the old variables out of the pipelines, and ask the steps for the new ones: %s\n",
		c.Store, len(done), sealer.template.KeyID, "kbgen secret get NAME")
	return nil
}
