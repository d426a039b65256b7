package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/pipeline"
)

// maxCheckedBytes bounds one file: far beyond what Buildkite takes.
const maxCheckedBytes = 64 << 20

// checkCommand applies the rules to pipelines, whoever wrote them.
type checkCommand struct {
	Files           []string `arg:"" optional:"" name:"file"`
	JSON            bool     `xor:"form" help:"print an array (kbgen schema findings) instead of lines FILE:LINE:COLUMN: SEVERITY: message [RULE]"`
	GitHub          bool     `name:"github" xor:"form" help:"print annotations of a GitHub workflow"`
	Severity        string   `default:"error" placeholder:"SEVERITY" help:"the lowest severity that fails: error, warning or info. Warnings are always shown, info only if asked for"`
	Ignore          []string `placeholder:"RULE" help:"ignore a rule; may be repeated, or KB201,KB202"`
	Strict          bool     `help:"apply what kbgen itself keeps to: one form for everything, nothing left to replace, policies as errors"`
	Complete        bool     `help:"nothing else is uploaded: a dependency on a step outside the file is a warning, as in .buildkite/pipeline.yml"`
	NoInterpolation bool     `name:"no-interpolation" help:"the pipeline is uploaded with --no-interpolation"`
	Rules           bool     `help:"list the rules with their severity and that of --strict; with --json see kbgen schema rules"`
}

func (c *checkCommand) Run(_ context.Context, env *cli.Env) error {
	if c.Rules {
		return c.listRules(env)
	}
	var least schema.Severity
	if err := least.UnmarshalText([]byte(c.Severity)); err != nil || least == schema.SeverityOff || least == schema.SeverityNote { // notes are for queue files
		return cli.Usagef("--severity %s: want error, warning or info", c.Severity)
	}
	for _, id := range c.Ignore {
		if !slices.ContainsFunc(pipeline.Rules(), func(r pipeline.Rule) bool { return r.ID == id }) {
			return cli.WithHint(cli.Usagef("--ignore %s: there is no such rule", id), "kbgen check --rules lists them")
		}
	}
	if len(c.Files) == 0 {
		return cli.WithHint(cli.Usagef("no file to check"), "kbgen check FILE, or - for standard input")
	}
	found, failed, err := c.all(env, least)
	if err != nil {
		return err
	}
	if err := c.print(env.Stdout, found); err != nil {
		return fmt.Errorf("writing the findings: %w", err)
	}
	if failed > 0 {
		return &cli.ExitError{Status: exitCheck, Err: fmt.Errorf("checking %s: %s of severity %s or worse",
			format.Count(len(c.Files), "file"), format.Count(failed, "finding"), least)}
	}
	return nil
}

// all checks every file. Shown are warnings and errors, or from least on;
// failed counts those from least on.
func (c *checkCommand) all(env *cli.Env, least schema.Severity) (found []schema.Finding, failed int, err error) {
	opts := pipeline.Options{Strict: c.Strict, NoInterpolation: c.NoInterpolation, Complete: c.Complete, Ignore: c.Ignore}
	for _, name := range c.Files {
		opts.First = isFirst(name)
		text, err := cli.ReadInput(env.Stdin, name, maxCheckedBytes)
		if err != nil {
			return nil, 0, fmt.Errorf("reading a pipeline: %w", err)
		}
		for _, f := range pipeline.Check(text, opts) {
			if f.Severity >= least {
				failed++
			}
			if f.Severity >= min(least, schema.SeverityWarning) {
				f.File = name
				found = append(found, f)
			}
		}
	}
	return found, failed, nil
}

// isFirst reports whether a file is one that the agent uploads when nobody names
// another: what a build begins with.
func isFirst(name string) bool {
	base := filepath.Base(name)
	stem := strings.TrimSuffix(base, filepath.Ext(base))
	if dir := filepath.Base(filepath.Dir(name)); stem == "pipeline" && (dir == ".buildkite" || dir == "buildkite") {
		return true
	}
	return stem == "buildkite" && base != stem
}

func (c *checkCommand) print(w io.Writer, found []schema.Finding) error {
	if c.JSON {
		return cli.PrintJSON(w, append([]schema.Finding{}, found...))
	}
	var b strings.Builder
	for _, f := range found {
		f.Line, f.Column = max(1, f.Line), max(1, f.Column)
		if c.GitHub {
			fmt.Fprintf(&b, "::%s file=%s,line=%d,col=%d,title=%s::%s\n", githubLevel(f.Severity),
				githubProperty(f.File), f.Line, f.Column, f.Rule, githubText(f.Message()))
		} else {
			fmt.Fprintln(&b, &f)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func githubLevel(s schema.Severity) string {
	if s == schema.SeverityInfo {
		return "notice"
	}
	return s.String()
}

// githubText escapes the text of a workflow command, githubProperty what
// stands before it.
func githubText(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func githubProperty(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}

// listRules prints the rules, one line each.
func (c *checkCommand) listRules(env *cli.Env) error {
	if c.JSON {
		return cli.PrintJSON(env.Stdout, pipeline.Rules())
	}
	for _, r := range pipeline.Rules() {
		if _, err := fmt.Fprintf(env.Stdout, "%s  %-7s  %-7s  %s\n", r.ID, r.Severity, r.Strict, r.Title); err != nil {
			return err
		}
	}
	return nil
}
