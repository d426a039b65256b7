package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/near"
	"github.com/gpu-mode/kbgen/schema/pipeline"
	"github.com/gpu-mode/kbgen/schema/published"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

// schemaCmd prints a JSON Schema.
type schemaCmd struct {
	Name string `arg:"" optional:"" name:"document" default:"pipeline"`
	List bool   `help:"list all documents that have a schema"`
}

// checkedFormats are the schemas that kbgen itself checks by.
var checkedFormats = map[string]func() []byte{"pipeline": pipeline.Schema, "queue-file": func() []byte { return queuefile.Schema }}

// schemaNames lists every schema there is.
func schemaNames() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(checkedFormats)), published.Names()...)))
}

func (c *schemaCmd) Run(_ context.Context, env *cli.Env) error {
	if c.List {
		return c.list(env)
	}
	text, known := schemaOf(c.Name)
	if !known {
		return cli.WithHint(cli.Usagef("no schema of %q%s", c.Name, near.Clause(c.Name, schemaNames())), "kbgen schema --list")
	}
	_, err := env.Stdout.Write(text)
	return err
}

func schemaOf(name string) ([]byte, bool) {
	if get, ok := checkedFormats[name]; ok {
		return get(), true
	}
	return published.Get(name)
}

func (c *schemaCmd) list(env *cli.Env) error {
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	for _, name := range schemaNames() {
		text, _ := schemaOf(name)
		var head struct{ Title string }
		if err := json.Unmarshal(text, &head); err != nil {
			return fmt.Errorf("the schema of %s: %w", name, err)
		}
		fmt.Fprintf(w, "%s\t%s\n", name, head.Title)
	}
	return w.Flush()
}
