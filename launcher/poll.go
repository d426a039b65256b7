package launcher

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gpu-mode/kbgen/launcher/pace"
)

// poll asks once.
func (w *watcher) poll(ctx context.Context) error {
	runs, began := w.polled(), time.Now()
	var err error
	switch {
	case len(runs) == 0:
		return nil
	case len(runs) == 1:
		err = w.one(ctx, runs[0])
	default:
		err = w.many(ctx, runs)
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range runs {
		r.asked = time.Since(r.created)
		if began.After(r.hintedAt) {
			r.hintedAt = time.Time{}
		}
	}
	return nil
}

// one asks about a lone run. The first time, the newest builds of its GPU type
// are listed, it among them: they show when to ask again.
func (w *watcher) one(ctx context.Context, r *run) error {
	w.mu.Lock()
	recall := !w.recalled[r.kind] && !w.c.known.have(r.kind) && r.gpu != ""
	w.recalled[r.kind] = true
	w.mu.Unlock()
	if recall {
		if err := w.recall(ctx, r); !permanent(err) { // a refusal is no matter: it was a wish
			return err
		}
	}
	b, err := w.c.get(ctx, r.number)
	if status(err) == http.StatusNotFound && time.Since(r.created) < w.c.delay {
		return nil // it was not there a moment ago, either
	}
	if err != nil {
		return err
	}
	w.deliver(r, update{build: b, jobs: true})
	return nil
}

// recalledBuilds is how many builds are listed to see how long they take: each
// repeats its payload.
const recalledBuilds = 10

func (w *watcher) recall(ctx context.Context, r *run) error {
	builds, _, err := page[Build](ctx, w.c, w.c.path+"/builds", url.Values{
		"meta_data[gpu]": {r.gpu}, "exclude_pipeline": {"true"}, "per_page": {strconv.Itoa(recalledBuilds)},
	})
	if err != nil {
		return err
	}
	for i := range builds {
		b := &builds[i]
		if b.Number == r.number {
			w.deliver(r, update{build: b, jobs: true})
		} else if b.MetaData["mode"] == r.kind.mode && b.MetaData["queue"] == r.kind.queue {
			w.c.known.add(r.kind, b)
		}
	}
	return nil
}

// many asks about several runs at once.
func (w *watcher) many(ctx context.Context, runs []*run) error {
	w.mu.Lock()
	open := time.Since(w.opened) >= time.Duration(float64(pace.OpenEvery(len(runs)))*w.c.quota.scale())
	w.mu.Unlock()
	seen := map[int]bool{}
	if open {
		// First the open ones: what ends meanwhile is among the ended.
		err := w.list(ctx, seen, true, url.Values{"state[]": openStates})
		if err != nil {
			return err
		}
	}
	err := w.list(ctx, seen, false, url.Values{
		"state[]": terminalStates, "exclude_jobs": {"true"}, "finished_from": {w.from(runs).UTC().Format(time.RFC3339)},
	})
	if err != nil {
		return err
	}
	now := time.Now()
	var absent []*run // and that means something
	w.mu.Lock()
	for _, r := range runs {
		r.covered = true
		if open && !seen[r.number] && now.After(r.absentAt) {
			absent = append(absent, r)
		}
	}
	if open {
		w.opened = now
	}
	w.mu.Unlock()
	for _, r := range absent {
		w.deliver(r, update{left: true})
	}
	return nil
}

// list delivers this client's builds that q matches.
func (w *watcher) list(ctx context.Context, seen map[int]bool, jobs bool, q url.Values) error {
	q.Set("meta_data[launcher]", w.c.id)
	q.Set("exclude_pipeline", "true")
	builds, err := w.c.list(ctx, q)
	if err != nil {
		return err
	}
	byNumber := map[int]*Build{}
	w.mu.Lock()
	for i := range builds {
		b := &builds[i]
		byNumber[b.Number], seen[b.Number] = b, true
		if end := moment(b.FinishedAt); end.After(w.ended) {
			w.ended = end
		}
	}
	w.mu.Unlock()
	for _, r := range w.polled() {
		if b := byNumber[r.number]; b != nil {
			w.deliver(r, update{build: b, jobs: jobs})
		}
	}
	return nil
}

// clockMargin is for a clock here that runs behind Buildkite's.
const clockMargin = 2 * time.Minute

// from is the time before which no ended build is of interest: for a run that no
// list of ended builds could have shown yet, when it was made; for the others
// what was not in the last list. All of it is by Buildkite's clock.
func (w *watcher) from(runs []*run) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first time.Time
	for i, r := range runs {
		at := r.made
		if at.IsZero() {
			at = r.created.Add(-clockMargin)
		}
		if last := w.ended.Add(-pace.Overlap); r.covered && last.After(at) {
			at = last
		}
		if i == 0 || at.Before(first) {
			first = at
		}
	}
	return first.Add(-time.Second)
}
