package web

import (
	"fmt"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/verdict/view/chart"
)

func (s *site) fillHistory(r *request, b *store.Board, gpu string, page *boardPage) error {
	best, err := s.Backend.History(r.Context(), r.viewer, b.Name, gpu)
	if err != nil {
		return err
	}
	until := r.now
	if b.Deadline.Before(until) {
		until = b.Deadline
	}
	h := chart.History{ID: "best", Title: "Best score of " + page.Name + " on " + page.GPU, Unit: "µs", Points: points(best), Until: until}
	if r.viewer.ID != "" {
		own, err := s.Backend.UserHistory(r.Context(), r.viewer, b.Name, gpu, r.viewer.ID)
		if err != nil {
			return err
		}
		h.Own = points(own)
	}
	page.Chart = h.SVG()
	for i := len(best) - 1; i >= 0 && len(page.Steps) < maxSteps; i-- {
		line := step{When: newMoment(best[i].Time, r.now), User: name(best[i].User), Score: format.Microseconds(best[i].Score), Path: submissionPath(best[i].SubmissionID)}
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
