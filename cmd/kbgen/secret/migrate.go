package secret

import (
	"context"
	"fmt"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/secrets/inventory"
)

// migrateCmd makes a store of the values that pipelines hold in the old formats.
type migrateCmd struct {
	Files         []string `arg:"" name:"file"`
	Key           []string `required:"" placeholder:"FILE" help:"a private key, lines AGE-SECRET-KEY-… or RSA in PEM; may be repeated"`
	RepositoryKey string   `name:"repository-key" placeholder:"FILE" help:"cryptic's repo_key.…, for its variables"`
	Store         string   `default:".buildkite/secrets.kb.yaml" placeholder:"FILE" help:"the store to put the values into"`
	bindingFlags
	sealingFlags

	now clock
}

func (c *migrateCmd) Run(_ context.Context, env *cli.Env) error {
	keys, err := readKeys(env, c.Key, c.RepositoryKey)
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
	var values []inventory.Value
	for _, file := range c.Files {
		found, err := scan(env, file)
		if err != nil {
			return err
		}
		values = append(values, found...)
	}
	report, err := keys.Migrate(values, sealer, c.binding(), store, c.Store)
	if err != nil {
		return cli.WithHint(usage(err), "nothing was written")
	}
	if len(report) == 0 {
		return cli.Usagef("got no value in an old format in %d files", len(c.Files))
	}
	if err := writeStore(c.Store, store); err != nil {
		return err
	}
	for _, line := range report {
		fmt.Fprintln(env.Stdout, line)
	}
	fmt.Fprintf(env.Stderr, "kbgen: %s: %d added, sealed for %s; now take the old variables out of the pipelines, and ask the steps for the new ones: %s\n",
		c.Store, len(report), sealer.Template.KeyID, "kbgen secret get NAME")
	return nil
}
