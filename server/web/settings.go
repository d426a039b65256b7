package web

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/server/competition"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// A settingsPage lets an admin change a board and evaluate its submissions again.
type settingsPage struct {
	*store.Board
	Path     string
	Deadline string // as the form takes it
	GPUText  string
	Limits   string
	Choices  []choice
	Report   *store.RejudgeReport // nil: never evaluated again
	Changes  []store.BoardChange
	Said     string
}

// A choice is a setting with few values.
type choice struct {
	Name, Label string
	Options     []option
}

func (s *site) settings(r *request) error { return s.showSettings(r, "") }

func (s *site) showSettings(r *request, said string) error {
	a, err := s.Backend.Admin(r.viewer)
	if err != nil {
		return err
	}
	b, err := s.Backend.Board(r.Context(), r.viewer, r.PathValue("board"))
	if err != nil {
		return err
	}
	limits := make([]string, len(b.Limits))
	for i, l := range b.Limits {
		limits[i] = l.String()
	}
	page := &settingsPage{Board: b, Path: settingsPath(b.Name), Deadline: b.Deadline.UTC().Format("2006-01-02T15:04"), GPUText: strings.Join(b.GPUs, " "), Limits: strings.Join(limits, " "), Said: said}
	add := func(name, label, value string, options ...option) {
		for i := range options {
			options[i].Chosen = options[i].Value == value
		}
		page.Choices = append(page.Choices, choice{name, label, options})
	}
	add("visibility", "Access", b.Visibility, option{Value: store.Public, Text: "public"}, option{Value: store.Closed, Text: "with an invite"})
	add("show_code", "Code of others", b.ShowCode, option{Value: store.CodeAfter, Text: "after the deadline"}, option{Value: store.CodeNever, Text: "never"})
	add("reuse", "The same text again", yesNo(b.Reuse), option{Value: "no", Text: "is evaluated again"}, option{Value: "yes", Text: "gets the stored result"})
	add("harness", "Harness", b.Policy.Harness, option{Text: "any"}, option{Value: schema.HarnessIsolated, Text: "isolated"}, option{Value: ranking.HarnessProved, Text: "isolated, on a proved GPU"})
	sandbox := []option{{Text: "any"}}
	for _, level := range schema.SandboxLevels() {
		sandbox = append(sandbox, option{Value: level, Text: level})
	}
	add("sandbox", "Weakest sandbox", b.Policy.Sandbox, sandbox...)
	add("clear_timing", "Ambiguous timing", yesNo(b.Policy.ClearTiming), option{Value: "no", Text: "ranks"}, option{Value: "yes", Text: "does not rank"})
	add("ties", "Overlapping intervals", yesNo(b.Policy.Ties), option{Value: "no", Text: "do not share a rank"}, option{Value: "yes", Text: "share a rank"})
	if page.Changes, err = a.BoardChanges(r.Context(), b.Name); err != nil {
		return err
	}
	if report, err := a.RejudgeReport(r.Context(), b.Name); err == nil {
		page.Report = &report
	} else if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return s.render(r, http.StatusOK, frame{Page: "settings", Title: "Settings of " + name(b.Name), Here: "admin", Content: page})
}

func settingsPath(board string) string { return "/admin" + boardPath(board, "") }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// actOnBoard does what a form of the settings page says.
func (s *site) actOnBoard(r *request) error {
	a, err := s.Backend.Admin(r.viewer)
	if err != nil {
		return err
	}
	board, by := r.PathValue("board"), store.Author{Reason: strings.TrimSpace(r.PostFormValue("reason"))}
	switch do := r.PostFormValue("do"); do {
	case "set":
		edit, err := boardEdit(r)
		if err != nil {
			return err
		}
		change, err := a.SetBoard(r.Context(), board, edit, store.SetOptions{By: by, JudgeLate: r.PostFormValue("judge_late") != ""})
		if err != nil {
			return err
		}
		said := "Nothing was changed."
		if len(change.Parts) > 0 {
			words := make([]string, len(change.Parts))
			for i, e := range change.Parts {
				words[i] = e.String()
			}
			said = "Changed " + strings.Join(words, "; ") + "."
		}
		return s.showSettings(r, said)
	case "preview", "rejudge":
		which := store.Rejudging{GPU: r.PostFormValue("gpu"), UserID: strings.TrimSpace(r.PostFormValue("user")), DryRun: do == "preview", By: by}
		switch status := r.PostFormValue("which"); status {
		case "ranked":
		case "all":
			which.All = true
		default:
			which.Status = status
		}
		planned, err := a.Rejudge(r.Context(), board, which)
		if err != nil {
			return err
		}
		said := format.Count(planned.Submissions, "submission") + " with " + format.Count(planned.Runs, "run")
		if planned.Took > 0 {
			said += ", about " + format.Duration(planned.Took) + " of GPU time"
		}
		if which.DryRun {
			return s.showSettings(r, "That would be "+said+".")
		}
		return s.showSettings(r, "Will be evaluated again: "+said+".")
	}
	return s.nothing(r)
}

// boardEdit reads the settings that the form has.
func boardEdit(r *request) (func(*store.Board) error, error) {
	deadline, ok := competition.ParseDeadline(r.PostFormValue("deadline"))
	if !ok {
		return nil, &refusal{http.StatusBadRequest, "The deadline must look like 2026-12-31T18:00."}
	}
	limits := []store.Limit{}
	for _, word := range strings.Fields(r.PostFormValue("limits")) {
		l, err := store.ParseLimit(word)
		if err != nil {
			return nil, &refusal{http.StatusBadRequest, "Limits: " + err.Error() + "."}
		}
		limits = append(limits, l)
	}
	value := r.PostFormValue
	return func(b *store.Board) error {
		if !b.Deadline.Truncate(time.Minute).Equal(deadline) { // the form has no seconds
			b.Deadline = deadline
		}
		b.GPUs = slices.Compact(slices.Sorted(slices.Values(strings.Fields(value("gpus")))))
		b.Limits, b.Visibility, b.ShowCode, b.Reuse = limits, value("visibility"), value("show_code"), value("reuse") == "yes"
		*b.Policy = ranking.Policy{Harness: value("harness"), Sandbox: value("sandbox"), ClearTiming: value("clear_timing") == "yes", Ties: value("ties") == "yes"}
		return nil
	}, nil
}
