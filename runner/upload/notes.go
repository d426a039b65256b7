package upload

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// noteLimit bounds an annotation: the build does not wait for it.
const noteLimit = 15 * time.Second

// Annotate shows a note about something on the build's page; "" is nothing to show. What goes wrong there is a warning.
func (a Uploader) Annotate(ctx context.Context, style, about, text string) {
	if about == "" {
		return
	}
	err := a.Call(ctx, noteLimit, "", literal(text)+"\n", "annotate", "--style", style, "--context", "kbgen-"+about)
	if err != nil {
		fmt.Fprintf(a.Stderr, "kbgen: warning: annotating the build: %v\n", err)
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
