package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/pipelines"
)

// noteLimit bounds an annotation: the build does not wait for it.
const noteLimit = 15 * time.Second

// say prints what the build asked for and does not get.
func say(env *cli.Env, notes []pipelines.Note) {
	for _, n := range notes {
		fmt.Fprintf(env.Stderr, "kbgen: note: %s\n", n.Text)
	}
}

// annotate shows a note on the build's page. What goes wrong there is a warning.
func (a uploader) annotate(ctx context.Context, style string, n pipelines.Note) {
	if n.About == "" {
		return
	}
	err := a.Call(ctx, noteLimit, "", literal(n.Text)+"\n", "annotate", "--style", style, "--context", "kbgen-"+n.About)
	if err != nil {
		fmt.Fprintf(a.env.Stderr, "kbgen: warning: annotating the build: %v\n", err)
	}
}

// literal is text that Markdown and HTML leave alone: a build's own words stand
// in notes.
func literal(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strings.ContainsRune("\\`*_{}[]<>()#+!|~&", r) {
			fmt.Fprintf(&b, "&#%d;", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
