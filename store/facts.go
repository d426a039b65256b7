package store

import (
	"maps"
	"slices"

	"github.com/gpu-mode/kbgen/store/ranking"
)

// A judged submission is everything that [Judge] says of it.
type judged struct {
	id       int64
	board    int64
	user     string
	verdicts []ranking.Decision
}

// found is what is read of one submission before it is judged.
type found struct {
	judged
	policy ranking.Policy
	base   ranking.Facts
	ranked bool
	gpus   map[string]*ranking.Facts
}

func (f *found) on(gpu string) *ranking.Facts {
	if f.gpus[gpu] == nil {
		f.gpus[gpu] = &ranking.Facts{}
	}
	return f.gpus[gpu]
}

// judge makes the verdicts, by GPU type.
func (f *found) judge() judged {
	if f.ranked {
		for _, gpu := range slices.Sorted(maps.Keys(f.gpus)) {
			facts := *f.gpus[gpu]
			facts.Hacked, facts.Late = f.base.Hacked, f.base.Late
			v := ranking.Decide(f.policy, facts)
			v.GPU = gpu
			f.verdicts = append(f.verdicts, v)
		}
	}
	return f.judged
}

// facts reads the submissions from first to last and judges them.
func (t *tx) facts(first, last int64) (out []judged) {
	all := map[int64]*found{}
	var f found
	var gpu string
	t.each(to{&f.id, &f.board, &f.user, &f.base.Hacked, &f.base.Late, &f.ranked, &gpu, &f.policy.Harness, &f.policy.Sandbox, &f.policy.ClearTiming}, func() {
		one := f
		one.gpus = map[string]*ranking.Facts{}
		if gpu != "" {
			one.on(gpu)
		}
		all[f.id] = &one
	}, `SELECT s.id, s.leaderboard_id, s.user_id, s.status = 'hacked' OR coalesce(j.status, '') = 'hacked', coalesce(a.late, false), coalesce(s.mode_category, '') = 'leaderboard',
			coalesce(a.gpu, ''), coalesce(b.harness, ''), coalesce(b.sandbox, ''), coalesce(b.clear_timing, false)
		FROM lb.submission s LEFT JOIN lb.submission_job_status j ON j.submission_id = s.id LEFT JOIN own.accepted a ON a.submission_id = s.id
		LEFT JOIN own.board b ON b.leaderboard_id = s.leaderboard_id WHERE s.id BETWEEN $1 AND $2`, first, last)
	t.runFacts(all, first, last)
	t.openFacts(all, first, last)
	if t.err != nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[id].judge())
	}
	return out
}

// runFacts adds the rows of runs.
func (t *tx) runFacts(all map[int64]*found, first, last int64) {
	var id int64
	var gpu string
	var r ranking.Run
	var j ranking.Judging
	var harness *string
	t.each(to{&id, &gpu, &r.Mode, &r.Secret, &r.Passed, &r.Score, &harness, &j.SelfChecked, &j.Sandbox, &j.Ambiguous, &j.Low, &j.High}, func() {
		f := all[id]
		if f == nil {
			return
		}
		r.Judging = nil
		if harness != nil {
			own := j
			own.Harness = *harness
			r.Judging = &own
		}
		f.on(gpu).Runs = append(f.on(gpu).Runs, r)
		f.ranked = f.ranked || r.Score != nil && !r.Secret
	}, `SELECT r.submission_id, r.runner, r.mode, r.secret, r.passed, CAST(r.score AS double precision), e.harness, coalesce(e.self_checked, false), coalesce(e.sandbox, ''), coalesce(e.ambiguous, false), e.low, e.high
		FROM lb.runs r LEFT JOIN own.run_evidence e ON e.run_id = r.id WHERE r.submission_id BETWEEN $1 AND $2 ORDER BY r.submission_id, r.id`, first, last)
}

// openFacts adds what is planned and has not finished.
func (t *tx) openFacts(all map[int64]*found, first, last int64) {
	var id int64
	var gpu string
	var secret bool
	t.each(to{&id, &gpu, &secret}, func() {
		f := all[id]
		switch {
		case f == nil:
		case secret:
			f.on(gpu).SecretOpen = true
		default:
			f.on(gpu).PublicOpen = true
		}
	}, `SELECT submission_id, gpu, secret FROM own.planned_run WHERE state <> 'finished' AND submission_id BETWEEN $1 AND $2`, first, last)
}
