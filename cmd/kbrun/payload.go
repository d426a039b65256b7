package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/runner/job"
	"github.com/gpu-mode/kbgen/schema"
)

type payloadCmd struct {
	Decode decodeCmd `cmd:""`
	Encode encodeCmd `cmd:""`
}

type decodeCmd struct {
	File    string `arg:"" optional:""`
	JSON    bool   `help:"print the whole payload as JSON instead, the seed too"`
	Sources bool   `help:"print the files' texts as well"`
}

// Run prints what a payload asks for. Sources and the seed are a competitor's
// and a competition's secrets: they are printed only when asked for.
func (c *decodeCmd) Run(_ context.Context, env *cli.Env) error {
	p, err := job.ReadPayload(c.File, env.Stdin, env.LookupEnv, nil)
	if err != nil {
		return err
	}
	if c.JSON {
		fmt.Fprintln(env.Stdout, p.JSON())
		return nil
	}
	summary(env.Stdout, p)
	if c.Sources {
		for _, f := range slices.Concat(p.Sources, p.Headers) {
			fmt.Fprintf(env.Stdout, "\n== %s ==\n%s\n", f.Name, strings.TrimSuffix(f.Text, "\n"))
		}
	}
	return nil
}

func summary(w io.Writer, p *schema.Payload) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-11s%s\n", name, fmt.Sprintf(format, args...))
	}
	line("lang", "%s", p.Lang)
	if p.Main != "" {
		line("main", "%s", job.Shown(p.Main))
	}
	line("mode", "%s", p.Mode)
	if p.Arch != nil {
		line("arch", "%s", job.Shown(*p.Arch))
	}
	line("ranking", "%s", p.RankingBy)
	line("seed", "%s", yesNo(p.Seed != nil, "set", "none"))
	line("multi-gpu", "%s", yesNo(p.MultiGPU, "yes", "no"))
	line("limits", "test %s, benchmark %s, ranked %s", limit(p.TestTimeout), limit(p.BenchmarkTimeout), limit(p.RankedTimeout))
	for _, f := range slices.Concat(p.Sources, p.Headers) {
		line("file", "%s, %d bytes, sha256 %x", job.Shown(f.Name), len(f.Text), sha256.Sum256([]byte(f.Text)))
	}
	for i, c := range p.Tests {
		line(fmt.Sprintf("test %d", i), "%s", job.Shown(c.Text()))
	}
	for i, c := range p.Benchmarks {
		line(fmt.Sprintf("bench %d", i), "%s", job.Shown(c.Text()))
	}
}

func yesNo(v bool, yes, no string) string {
	if v {
		return yes
	}
	return no
}

func limit(t schema.Timeout) string {
	if d, limited := t.Limit(); limited {
		return d.String()
	}
	return "none"
}

type encodeCmd struct {
	File string `arg:"" optional:"" default:"-"`
}

// Run prints a payload as a launcher would send it, on one line.
func (c *encodeCmd) Run(_ context.Context, env *cli.Env) error {
	p, err := job.ReadPayload(c.File, env.Stdin, env.LookupEnv, nil)
	if err != nil {
		return err
	}
	encoded, err := p.Encode()
	if err != nil {
		return err
	}
	vars, err := schema.PayloadEnv(encoded)
	if err != nil {
		return err
	}
	if len(vars) > 1 {
		fmt.Fprintf(env.Stderr, "kbrun: warning: %d characters do not fit into %s: a build needs %d variables\n", len(encoded), schema.EnvPayload, len(vars))
	}
	fmt.Fprintln(env.Stdout, encoded)
	return nil
}
