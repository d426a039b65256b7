package web

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// submit takes a file from a board's form. What is refused is said above the form.
func (s *site) submit(r *request) error {
	in, err := readForm(r)
	if err != nil {
		return s.showBoard(r, http.StatusBadRequest, err.Error())
	}
	receipt, err := s.Backend.Submit(r.Context(), r.viewer, in)
	var refused *store.Refusal
	switch {
	case errors.As(err, &refused) && refused.Why != store.UnknownBoard:
		if refused.RetryAfter > 0 {
			r.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(refused.RetryAfter.Seconds()))))
		}
		return s.showBoard(r, refusedStatus(refused.Why), refused.Text)
	case err != nil:
		return err
	}
	return r.see(submissionPath(receipt.ID))
}

func readForm(r *request) (backend.Request, error) {
	in := backend.Request{Board: r.PathValue("board"), GPU: r.PostFormValue("gpu"), Mode: r.PostFormValue("mode")}
	file, header, err := r.FormFile("file")
	if err != nil {
		return in, errNoFile
	}
	defer file.Close()
	in.FileName = header.Filename
	if in.Code, err = io.ReadAll(io.LimitReader(file, store.MaxCode+1)); err != nil {
		return in, errors.New("the file could not be read")
	}
	if len(in.Code) == 0 {
		return in, errNoFile
	}
	return in, nil
}

var modes = []option{
	{Value: schema.ModeLeaderboard, Text: "Ranked: tests, benchmarks, and a score on the board"},
	{Value: schema.ModeBenchmark, Text: "Benchmark: how fast it is, without a rank"},
	{Value: schema.ModeTest, Text: "Test: whether the answers are right"},
	{Value: schema.ModeProfile, Text: "Profile: where the time goes"},
}

func (p *boardPage) fillForm(r *request, b *store.Board, gpu, problem string) {
	f := &p.Form
	f.Path, f.Problem = boardPath(b.Name, "")+"#submit", view.Sentence(problem) // so that a refusal is in sight
	if r.viewer.ID == "" {
		f.LogIn = "/login?next=" + url.QueryEscape(boardPath(b.Name, gpu))
	}
	for _, g := range orderGPUs(b.GPUs) {
		f.GPUs = append(f.GPUs, option{g, name(g), g == gpu})
	}
	f.Modes = slices.Clone(modes)
	for i := range f.Modes {
		f.Modes[i].Chosen = f.Modes[i].Value == r.PostFormValue("mode")
	}
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._:/%@+-]+$`)

// shell quotes a word for a shell where it needs that.
func shell(s string) string {
	if s = text.Line(s, 500); plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

var errNoFile = errors.New("no file was chosen")
