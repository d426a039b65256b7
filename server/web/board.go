package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
	"github.com/gpu-mode/kbgen/verdict/view"
	"github.com/gpu-mode/kbgen/verdict/view/chart"
)

const (
	pageSize = 100 // lines of a ranking
	ownCount = 10  // the viewer's own submissions on a board's page
	maxSteps = 200 // lines of the table beside the chart
)

type boardPage struct {
	*store.Board
	GPU    string
	Tabs   []tab
	Ranked int // on this GPU type
	IsOpen bool

	Rows  []ranking.Entry
	First float64 // score of the first
	Pages pages
	Place *place // of the viewer; nil for who does not rank

	Chart template.HTML
	Steps []step

	Own     []listed
	OwnMore string // path

	Description template.HTML
	Cases       []publicCase
	References  []task.File // the task's reference implementation
	Terms       []view.Term // what holds on the board
	Changes     []store.BoardChange

	Queue    string          // what waits for this GPU type, one sentence
	Off      string          // why nothing runs there
	Unserved bool            // no machine is connected that serves it
	without  map[string]bool // GPU types like that
	Form     submitForm
	Commands commands
}

// A publicCase is one of a task's cases whose seed is no secret.
type publicCase struct {
	Use, Text string // "test", "n: 3"
}

// fillTask shows the public cases, and the files of the task that are named reference:
// reference.py, reference.cuh.
func (page *boardPage) fillTask(t *task.Task) {
	for use, cases := range map[string][]schema.Case{"test": t.Tests, "benchmark": t.Benchmarks} {
		for _, c := range cases {
			page.Cases = append(page.Cases, publicCase{use, c.Text()})
		}
	}
	slices.SortStableFunc(page.Cases, func(a, b publicCase) int { return strings.Compare(b.Use, a.Use) })
	for _, f := range t.Files {
		if stem, _, _ := strings.Cut(f.Name, "."); stem == "reference" && !f.Submission {
			f.Text = text.Lines(f.Text)
			page.References = append(page.References, f)
		}
	}
}

// commands are what somebody types who submits without a browser.
type commands struct{ Server, Board, GPU, URL, File string }

// A tab is one of several views of a thing.
type tab struct {
	Text, Path string
	Here       bool
}

// A place is where the viewer ranks.
type place struct {
	Rank, Path string
	Here       bool // on this page of the ranking
}

// pages lead through a long list.
type pages struct {
	At, Of         int
	Previous, Next string // paths; "": none
}

// A step is one improvement, for the table beside the chart.
type step struct {
	store.Step
	Gain string
}

// A submitForm hands in a file.
type submitForm struct {
	Shown   bool
	Path    string
	GPUs    []option
	Modes   []option
	Problem string // why the last try was refused
	LogIn   string // path, for somebody who is not known
}

type option struct {
	Value, Text string
	Chosen      bool
}

func (s *site) board(r *request) error { return s.showBoard(r, http.StatusOK, "") }

// showBoard renders a board's page, with what is wrong with a form that was sent.
func (s *site) showBoard(r *request, status int, problem string) error {
	ctx := r.Context()
	b, err := s.Backend.Board(ctx, r.viewer, r.PathValue("board"))
	if err != nil {
		return err
	}
	gpus := orderGPUs(b.GPUs)
	gpu := r.PathValue("gpu")
	switch {
	case gpu == "" && slices.Contains(gpus, r.PostFormValue("gpu")):
		gpu = r.PostFormValue("gpu")
	case gpu == "" && len(gpus) > 0:
		gpu = gpus[0]
	case !slices.Contains(gpus, gpu):
		return &refusal{http.StatusNotFound, fmt.Sprintf("The board %s has no GPU type of that name.", name(b.Name))}
	}
	page := &boardPage{Board: b, GPU: name(gpu), IsOpen: r.now.Before(b.Deadline)}
	page.Commands = commands{shell(s.PublicURL), shell(b.Name), shell(gpu), shell(s.PublicURL + "/submission/" + url.PathEscape(b.Name) + "/" + url.PathEscape(gpu) + "/" + schema.ModeLeaderboard), templateFile("")}
	if b.Task != nil {
		page.Commands.File = templateFile(b.Task.Lang)
	}
	for _, g := range gpus {
		page.Tabs = append(page.Tabs, tab{name(g), boardPath(b.Name, g), g == gpu})
	}
	for _, fill := range []func(*request, *store.Board, string, *boardPage) error{s.fillRanking, s.fillHistory, s.fillOwn, s.fillTerms, s.fillQueue} {
		if err := fill(r, b, gpu, page); err != nil {
			return err
		}
	}
	if page.Changes, err = s.Backend.BoardChanges(ctx, r.viewer, b.Name); err != nil {
		return err
	}
	page.Description = describe(b.Description)
	if page.Description == "" && b.Task != nil {
		page.Description = describe(b.Task.Description)
	}
	if b.Task != nil {
		page.fillTask(b.Task)
	}
	page.fillForm(r, b, gpu, problem)
	return s.render(r, status, frame{Page: "board", Title: name(b.Name) + " on " + page.GPU, Here: "boards", Events: "/events/board/" + b.Name, Content: page})
}

func (s *site) fillRanking(r *request, b *store.Board, gpu string, page *boardPage) error {
	at := pageNumber(r)
	entries, total, err := s.Backend.Ranking(r.Context(), r.viewer, b.Name, gpu, pageSize, (at-1)*pageSize)
	if err != nil {
		return err
	}
	page.Ranked = total
	page.Pages = newPages(boardPath(b.Name, gpu), at, total)
	if at > 1 && len(entries) == 0 {
		return &refusal{http.StatusNotFound, "The ranking is not that long."}
	}
	if len(entries) == 0 {
		return nil
	}
	all := entries
	if at > 1 || r.viewer.ID != "" && at < page.Pages.Of {
		if all, _, err = s.Backend.Ranking(r.Context(), r.viewer, b.Name, gpu, 0, 0); err != nil {
			return err
		}
	}
	page.Rows, page.First = entries, entries[0].Score
	if at > 1 && len(all) > 0 {
		page.First = all[0].Score
	}
	if i := slices.IndexFunc(all, func(e ranking.Entry) bool { return r.viewer.ID != "" && e.UserID == r.viewer.ID }); i >= 0 {
		page.Place = &place{rank(all[i]), fmt.Sprintf("%s?page=%d#ranking", boardPath(b.Name, gpu), i/pageSize+1), i/pageSize+1 == at}
	}
	return nil
}

// interval writes a confidence interval of seconds in microseconds.
func interval(low, high *float64) string {
	if low == nil || high == nil {
		return ""
	}
	return format.Microseconds(*low) + "–" + format.Microseconds(*high)
}

// pageNumber is the page of a list that a request asks for, from 1.
func pageNumber(r *request) int {
	n, err := strconv.Atoi(r.FormValue("page"))
	if err != nil || n < 1 || n > 1e6 {
		return 1
	}
	return n
}

func newPages(path string, at, total int) pages {
	p := pages{At: at, Of: max((total+pageSize-1)/pageSize, 1)}
	page := func(n int) string {
		if n == 1 {
			return path + "#ranking"
		}
		return fmt.Sprintf("%s?page=%d#ranking", path, n)
	}
	if at > 1 {
		p.Previous = page(at - 1)
	}
	if at < p.Of {
		p.Next = page(at + 1)
	}
	return p
}

func (s *site) fillOwn(r *request, b *store.Board, _ string, page *boardPage) error {
	if r.viewer.ID == "" {
		return nil
	}
	own, err := s.Backend.Mine(r.Context(), r.viewer, store.Query{UserID: r.viewer.ID, Board: b.Name, Limit: ownCount + 1})
	if err != nil {
		return err
	}
	if len(own) > ownCount {
		own, page.OwnMore = own[:ownCount], userPath(r.viewer.ID)+"?board="+b.Name
	}
	page.Own = newListed(own, false)
	return nil
}

// fillQueue says how long one waits here.
func (s *site) fillQueue(r *request, _ *store.Board, gpu string, page *boardPage) error {
	line, err := s.Backend.Line(r.Context(), r.viewer)
	if err != nil {
		return err
	}
	page.without = map[string]bool{}
	for i := range line {
		g := &line[i]
		page.without[g.GPU] = g.Off == "" && g.Known && g.Agents == 0
		if g.GPU != gpu {
			continue
		}
		page.Unserved = page.without[gpu]
		q := newQueue(&line[i], r, i)
		page.Off = view.Sentence(q.Off)
		page.Queue = fmt.Sprintf("%s running, %s waiting", format.Number(q.Running), format.Number(q.Waiting))
		if q.Expected != "" {
			page.Queue += "; a new one begins " + q.Expected
		}
	}
	return nil
}

func (s *site) fillHistory(r *request, b *store.Board, gpu string, page *boardPage) error {
	best, err := s.Backend.History(r.Context(), r.viewer, b.Name, gpu, "")
	if err != nil {
		return err
	}
	until := r.now
	if b.Deadline.Before(until) {
		until = b.Deadline
	}
	h := chart.History{ID: "best", Title: "Best score of " + name(b.Name) + " on " + page.GPU, Unit: "µs", Points: points(best), Until: until}
	if r.viewer.ID != "" {
		own, err := s.Backend.History(r.Context(), r.viewer, b.Name, gpu, r.viewer.ID)
		if err != nil {
			return err
		}
		h.Own = points(own)
	}
	page.Chart = h.SVG()
	for i := len(best) - 1; i >= 0 && len(page.Steps) < maxSteps; i-- {
		line := step{Step: best[i]}
		if i > 0 && best[i-1].Score > 0 {
			line.Gain = fmt.Sprintf("−%.1f %%", 100*(1-best[i].Score/best[i-1].Score))
		}
		page.Steps = append(page.Steps, line)
	}
	return nil
}

func points(steps []store.Step) []chart.Point {
	out := make([]chart.Point, len(steps))
	for i, s := range steps {
		out[i] = chart.Point{Time: s.Time, Value: s.Score * 1e6, Label: fmt.Sprintf("%s µs, %s, %s", format.Microseconds(s.Score), name(s.User), s.Time.UTC().Format("2 Jan 2006 15:04"))}
	}
	return out
}

// firstGPUs are shown before all others, in this order.
var firstGPUs = []string{"B200", "H100", "MI300", "A100", "L4", "T4"}

// orderGPUs sorts GPU types: those that people look for first, then the others by
// name. A name with something behind it, B200_BK, belongs to the shorter one.
func orderGPUs(gpus []string) []string {
	out := slices.Clone(gpus)
	slices.SortStableFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(placeOf(a), placeOf(b)), cmp.Compare(a, b))
	})
	return out
}

func placeOf(gpu string) int {
	stem, _, _ := strings.Cut(gpu, "_")
	if at := slices.Index(firstGPUs, strings.ToUpper(stem)); at >= 0 {
		return at
	}
	return len(firstGPUs)
}

// fillTerms says what holds on a board.
func (s *site) fillTerms(r *request, b *store.Board, _ string, page *boardPage) error {
	add := func(name, text string) { page.Terms = append(page.Terms, view.Term{Name: name, Text: text}) }
	add("Deadline", b.Deadline.UTC().Format("2 January 2006, 15:04 UTC"))
	limits, err := s.Backend.Limits(r.Context(), r.viewer, b.Name)
	if err != nil {
		return err
	}
	add("Limits", limitWords(limits))
	if b.Task != nil {
		add("Language", languages[b.Task.Lang])
		add("Score", rankings[b.Task.RankingBy])
	}
	p := b.Policy
	if p == nil {
		p = &ranking.Policy{}
	}
	switch p.Harness {
	case schema.HarnessIsolated:
		add("Judge", "Only runs that a separate judge timed and checked: the submission holds neither the answers nor the clock.")
	case ranking.HarnessProved:
		add("Judge", "Only runs that a separate judge timed and checked, on a GPU where tests have shown that this judge works.")
	default:
		add("Judge", "The harness that the task brings, or a separate judge.")
	}
	switch p.Sandbox {
	case schema.SandboxFull:
		add("Sandbox", "Full: no network, no other processes, its own files only.")
	case schema.SandboxPartial:
		add("Sandbox", "At least partial: no privileges, no secrets, limits on what it starts.")
	default:
		add("Sandbox", "Any that the machine has; what it was is shown beside each result.")
	}
	if b.Task != nil {
		if words := view.EvidenceWords(b.Task.Inputs, b.Task.Evidence); words != "" {
			add("Evidence", words)
		}
	}
	if p.ClearTiming {
		add("Timing", "Only clear runs: not where the GPU was slowed down or somebody else was on it.")
	}
	if p.Ties {
		add("Ties", "Scores whose 95 % intervals overlap share a rank.")
	} else {
		add("Ties", "Equal scores share a rank.")
	}
	if b.Visibility == store.Closed {
		add("Access", "With an invite.")
	}
	return nil
}

var languages = map[string]string{schema.LangPython: "Python", schema.LangCUDA: "CUDA C++"}

var rankings = map[string]string{
	schema.RankLast: "The time of the last benchmark; lower is better.",
	schema.RankMean: "The mean time over all benchmarks; lower is better.",
	schema.RankGeom: "The geometric mean of the times of all benchmarks; lower is better.",
}

func limitWords(limits []store.Limit) string {
	if len(limits) == 0 {
		return "None."
	}
	var words []string
	for _, l := range limits {
		kind := "ranked submissions"
		if l.Category == schema.ModeTest {
			kind = "tests, benchmarks and profiles"
		}
		on := ""
		if l.GPU != "" {
			on = " on " + name(l.GPU)
		}
		if l.PerHour == 0 {
			words = append(words, fmt.Sprintf("no %s%s", kind, on))
			continue
		}
		words = append(words, fmt.Sprintf("%s %s an hour%s", format.Number(l.PerHour), kind, on))
	}
	return view.Sentence("for each user " + strings.Join(words, "; "))
}
