package verdict

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpu-mode/kbgen/schema"
)

func TestMarkdownCannotBeBrokenOut(t *testing.T) {
	v := Of(&schema.Result{RunID: "r", Outcome: schema.NewOutcome(schema.OutcomeWrong, "`<script>`\n# big [x](http://e)")})
	if got, want := v.Markdown(), "**wrong** `r` `'<script>' # big [x](http://e)`\n"; !strings.HasPrefix(got, want) {
		t.Errorf("Markdown() = %q, want it to begin with %q", got, want)
	}
	v.Outcome.Name = "** [x](http://e)" // from a result that somebody else wrote
	if got, want := v.Markdown(), "`** [x](http://e)` `r` "; !strings.HasPrefix(got, want) {
		t.Errorf("Markdown() = %q, want it to begin with %q", got, want)
	}
}

// An annotation's line is empty, the first one, or an item of a list: words of
// ours, and at most one code span behind them.
var markdownLine = regexp.MustCompile("^(|(\\*\\*[a-z-]+\\*\\*|`[^`]+`) `[^`]+` `[^`]+`|- [^`<>\\[\\]*_&|#\\\\]*(`[^`]+`)?)$")

// checkMarkdown holds what is true of every annotation, whatever the result
// holds.
func checkMarkdown(t *testing.T, name, got string) {
	t.Helper()
	for i, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
		if !markdownLine.MatchString(strings.ReplaceAll(line, "custom_kernel", "")) || i == 0 && (line == "" || line[0] == '-') || i > 0 && line != "" && line[0] != '-' {
			t.Errorf("%s: line %d is %q", name, i+1, line)
		}
	}
	if len(got) > schema.MaxAnnotation {
		t.Errorf("%s: an annotation of %d bytes", name, len(got))
	}
}

func TestMarkdownOfAmbiguousTimes(t *testing.T) {
	r := &schema.Result{RunID: "r", Outcome: schema.NewOutcome(schema.OutcomePassed, "")}
	for range 7 {
		r.Ambiguous = append(r.Ambiguous, "device 0 was used by `rm` <b>\n- x")
	}
	got := Of(r).Markdown()
	if strings.Count(got, "- ambiguous: `device 0 was used by 'rm' <b> - x`\n") != maxAmbiguous || !strings.HasSuffix(got, "\n- and 2 more ambiguous\n") {
		t.Errorf("Markdown() = %q", got)
	}
	if got := code("\x00\u202e"); got != "`-`" {
		t.Errorf("code of nothing visible = %q", got)
	}
}

// The largest that a result can be made is cut to whole lines that fit.
func TestMarkdownIsBounded(t *testing.T) {
	long := strings.Repeat("😀`<", 1000)
	r := &schema.Result{RunID: long, Outcome: schema.NewOutcome(schema.OutcomeWrong, long)}
	for i := range 2000 {
		r.Runs = append(r.Runs, phase(fmt.Sprint(i), schema.RunResult{Success: true}, "test.0.spec", long, "test.0.status", "fail", "test.0.error", long))
	}
	got := Of(r).Markdown()
	checkMarkdown(t, "many", got)
	if len(got) < schema.MaxAnnotation/2 || !strings.HasSuffix(got, "\n- more is in the result\n") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-100:])
	}
}

func TestChart(t *testing.T) {
	long := make([]float64, 1000)
	for i := range long {
		long[i] = float64(i)
	}
	for want, samples := range map[string][]float64{
		"":         {1},
		"▁█":       {1, 2},
		"▁▁▁":      {5, 5, 5},
		"▁▂▃▄▅▆▇█": {0, 1, 2, 3, 4, 5, 6, 7},
		"▁█▁":      {-math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64, math.NaN(), math.Inf(1)},
	} {
		if got := chart(samples); utf8.RuneCountInString(got) > chartWidth || got != want {
			t.Errorf("chart(%v) = %q, want %q", samples, got, want)
		}
	}
	if got := chart(long); utf8.RuneCountInString(got) != chartWidth || !strings.HasPrefix(got, "▁") || !strings.HasSuffix(got, "█") {
		t.Errorf("chart of 1000 samples = %q", got)
	}
}
