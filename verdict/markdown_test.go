package verdict

import (
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

func TestMarkdownCannotBeBrokenOut(t *testing.T) {
	v := Of(&schema.Result{RunID: "r", Outcome: schema.NewOutcome(schema.OutcomeWrong, "`<script>`\n# big [x](http://e)")})
	if got, want := v.Markdown(), "**wrong** `r` `'<script>' # big [x](http://e)`\n"; got != want {
		t.Errorf("Markdown() = %q, want %q", got, want)
	}
	v.Outcome.Name = "** [x](http://e)" // from a result that somebody else wrote
	if got, want := v.Markdown(), "`** [x](http://e)` `r` "; !strings.HasPrefix(got, want) {
		t.Errorf("Markdown() = %q, want it to begin with %q", got, want)
	}
}

func TestMarkdownOfAmbiguousTimes(t *testing.T) {
	r := &schema.Result{RunID: "r", Outcome: schema.NewOutcome(schema.OutcomePassed, "")}
	for range 7 {
		r.Ambiguous = append(r.Ambiguous, "device 0 was used by `rm` <b>\n- x")
	}
	got := Of(r).Markdown()
	if strings.Count(got, "\nambiguous: `device 0 was used by 'rm' <b> - x`\n") != maxAmbiguous || !strings.HasSuffix(got, "\nand 2 more\n") {
		t.Errorf("Markdown() = %q", got)
	}
	if got := code("\x00\u202e"); got != "`-`" {
		t.Errorf("code of nothing visible = %q", got)
	}
}
