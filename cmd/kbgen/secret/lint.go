package secret

import (
	"context"
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/pipeline"
)

// secretRules begin the rules that are about secrets.
const secretRules = "KB7"

// lintCmd applies those rules of kbgen check that are about secrets.
type lintCmd struct {
	Files []string `arg:"" name:"file"`
}

func (c *lintCmd) Run(_ context.Context, env *cli.Env) error {
	failed := false
	for _, file := range c.Files {
		text, err := readFile(env, file)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		for _, f := range pipeline.Check(text, pipeline.Options{Strict: true}) {
			if !strings.HasPrefix(f.Rule, secretRules) && !(f.Rule == "KB002" || f.Rule == "KB001") {
				continue
			}
			f.File = file
			f.Line, f.Column = max(1, f.Line), max(1, f.Column)
			failed = failed || f.Severity >= schema.SeverityWarning
			if _, err := fmt.Fprintln(env.Stdout, &f); err != nil {
				return err
			}
		}
	}
	if failed {
		return &cli.ExitError{Status: exitFindings}
	}
	return nil
}
