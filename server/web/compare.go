package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/verdict"
	"github.com/gpu-mode/kbgen/verdict/comparison"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// A comparePage sets two submissions side by side.
type comparePage struct {
	Sides   []comparedSide         // two, or none: which are to be compared is asked
	Times   *comparison.Comparison // nil: NoTimes says why
	NoTimes string
	Diff    []diffLine // of the code; none: NoDiff says why
	NoDiff  string
	Swap    string // path of the same page the other way round
}

type comparedSide struct {
	*backend.Submission
	State view.State
	Score string
}

// A diffLine is one line of the code's differences.
type diffLine struct{ Mark, Text string }

// maxDiffed bounds the code of one side whose differences are shown, in bytes.
const maxDiffed = 128 << 10

func (s *site) compare(r *request) error {
	page := &comparePage{}
	if r.URL.RawQuery == "" {
		return s.render(r, http.StatusOK, frame{Page: "compare", Title: "Compare two submissions", Content: page})
	}
	for _, name := range []string{"a", "b"} {
		id, err := strconv.ParseInt(r.FormValue(name), 10, 64)
		if err != nil || id < 1 {
			return &refusal{http.StatusBadRequest, "Compare two submissions by their numbers: /compare?a=17&b=23."}
		}
		sub, err := s.Backend.Submission(r.Context(), r.viewer, id)
		if err != nil {
			return err
		}
		side := comparedSide{Submission: sub, State: stateOf(&sub.Listed, sub.Wait != nil && !sub.Wait.Running)}
		for _, v := range sub.Verdicts {
			if v.Score != nil {
				side.Score = format.Microseconds(*v.Score)
			}
		}
		page.Sides = append(page.Sides, side)
	}
	a, b := page.Sides[0].Submission, page.Sides[1].Submission
	page.Swap = comparePath(b.ID, a.ID)
	page.fillTimes(a, b)
	page.fillDiff(a, b)
	return s.render(r, http.StatusOK, frame{Page: "compare", Title: fmt.Sprintf("Submissions %d and %d", a.ID, b.ID), Content: page})
}

func comparePath(a, b int64) string {
	return "/compare?" + url.Values{"a": {strconv.FormatInt(a, 10)}, "b": {strconv.FormatInt(b, 10)}}.Encode()
}

func (page *comparePage) fillTimes(a, b *backend.Submission) {
	if a.Board != b.Board {
		page.NoTimes = "The two are for different boards."
		return
	}
	older, newer := timed(a), timed(b)
	if older == nil || newer == nil {
		page.NoTimes = "Times are compared only if you may see both results, as for your own judged submissions."
		return
	}
	compared, err := comparison.Compare(older, newer)
	if err != nil {
		page.NoTimes = view.Sentence(err.Error())
		return
	}
	page.Times = compared
}

// timed is the verdict of the last report that the viewer sees, nil for none.
func timed(sub *backend.Submission) *verdict.Verdict {
	for i := len(sub.Reports) - 1; i >= 0; i-- {
		if sub.Reports[i].Result != nil {
			v := verdict.Of(sub.Reports[i].Result)
			v.GPUType = sub.Reports[i].GPU
			return v
		}
	}
	return nil
}

func (page *comparePage) fillDiff(a, b *backend.Submission) {
	switch {
	case !a.ShowCode || !b.ShowCode:
		page.NoDiff = "You may not see the code of both submissions."
		return
	case len(a.Code) > maxDiffed || len(b.Code) > maxDiffed:
		page.NoDiff = "The files are too long to be compared here."
		return
	}
	old, code := text.Lines(a.Code), text.Lines(b.Code)
	diff, err := udiff.ToUnifiedDiff("", "", old, udiff.Strings(old, code), udiff.DefaultContextLines)
	if err != nil || len(diff.Hunks) == 0 {
		page.NoDiff = "The two have the same code."
		return
	}
	for _, hunk := range diff.Hunks {
		page.Diff = append(page.Diff, diffLine{"@", fmt.Sprintf("from line %d, now line %d", hunk.FromLine, hunk.ToLine)})
		for _, line := range hunk.Lines {
			mark := map[udiff.OpKind]string{udiff.Delete: "-", udiff.Insert: "+", udiff.Equal: " "}[line.Kind]
			page.Diff = append(page.Diff, diffLine{mark, strings.TrimSuffix(line.Content, "\n")})
		}
	}
}

// fillCompare offers the viewer's other submissions on a submission's board.
func (s *site) fillCompare(r *request, page *submissionPage) error {
	if r.viewer.ID == "" || !page.Done {
		return nil
	}
	mine, err := s.Backend.Mine(r.Context(), r.viewer, store.Query{UserID: r.viewer.ID, Board: page.Board, Limit: 30})
	var refused *store.Refusal
	if errors.As(err, &refused) {
		return nil
	}
	for _, l := range mine {
		if l.ID != page.ID && l.Done {
			page.Others = append(page.Others, option{Value: strconv.FormatInt(l.ID, 10), Text: fmt.Sprintf("%d, %s, %s", l.ID, text.Line(l.FileName, 60), newMoment(l.Time, r.now).Text)})
		}
	}
	return err
}
