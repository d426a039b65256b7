package store

import (
	"cmp"
	"fmt"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/database"
)

// An Outcome says how a submission came out, in the words of [schema.Outcome]. Its
// JSON is what kbserve and the API print.
type Outcome struct {
	Name  string `json:"name" jsonschema:"one of docs/outcomes.md"`
	Fault string `json:"fault" jsonschema:"who has to act"`
	Text  string `json:"text" jsonschema:"one line"`
	Next  string `json:"next" jsonschema:"what the submitter can do; empty: nothing"`
}

// Judged reports whether the outcome says something about the submission.
func (o *Outcome) Judged() bool {
	return o.Fault == schema.FaultNone || o.Fault == schema.FaultSubmission
}

func newOutcome(o schema.Outcome) *Outcome {
	return &Outcome{Name: o.Name, Fault: o.Fault, Text: o.Text, Next: o.NextAtLast()}
}

// Progress is how far a submission is, in one word: waiting, running, hacked, or the
// name of its outcome. A submission that ended without an outcome has the status of
// its job.
func (l *Listed) Progress() string {
	switch {
	case l.Hacked:
		return StatusHacked
	case l.Outcome != nil:
		return l.Outcome.Name
	case l.Done || l.Job.Status == StatusRunning:
		return l.Job.Status
	}
	return "waiting"
}

// evaluated holds the outcomes of the public or the secret runs of one submission.
type evaluated struct {
	outcomes []string // of runs with a result; "" is not known
	none     string   // of the first run that has no result
}

// name is the outcome of the group: the first that is not a pass. "" is not known.
func (e *evaluated) name() string {
	for _, name := range e.outcomes {
		if name != schema.OutcomePassed {
			return name
		}
	}
	if len(e.outcomes) > 0 {
		return schema.OutcomePassed
	}
	return e.none
}

// outcomes adds the outcomes of submissions that have finished. A further evaluation
// makes up for a first one without a result, as in [tx.finish].
func (t *tx) outcomes(list []*Listed) {
	type group struct {
		id     int64
		secret bool
	}
	groups := map[group]*evaluated{}
	at := func(g group) *evaluated {
		if groups[g] == nil {
			groups[g] = &evaluated{}
		}
		return groups[g]
	}
	byID := map[int64]*Listed{}
	var args []any
	for _, l := range list {
		if l.Done {
			byID[l.ID] = l
			args = append(args, l.ID)
		}
	}
	if len(args) == 0 {
		return
	}
	var g group
	var gpu, kind, status, outcome string
	t.each(dest{&g.id, &g.secret, &gpu, &kind, &status, &outcome}, func() {
		e := at(g)
		switch {
		case byID[g.id].GPU != gpu:
		case status != "" && kind == "":
			e.none = outcome
		case status != "":
		case kind == againInstead:
			e.outcomes = []string{outcome}
		default:
			e.outcomes = append(e.outcomes, outcome)
		}
	}, `SELECT submission_id, secret, gpu, again, outcome, result_outcome FROM own.planned_run
		WHERE state = 'finished' AND submission_id IN (`+placeholders(0, len(args))+`) ORDER BY submission_id, created_at, run_id`, args...)
	old := t.rowOutcomes(byID, func(id int64) bool {
		secret := groups[group{id, true}]
		return at(group{id, false}).name() == "" || secret != nil && secret.name() == ""
	})
	for id, l := range byID {
		public, secret := at(group{id, false}).name(), at(group{id, true}).name()
		l.Outcome = combined(cmp.Or(public, old[id][0]), cmp.Or(secret, old[id][1]))
	}
}

// combined returns the outcome of a submission, given the names of its public and secret
// outcomes; "" is an unknown or a missing outcome.
func combined(public, secret string) *Outcome {
	o, known := schema.FindOutcome(public)
	switch {
	case !known:
		return nil
	case o.Name != schema.OutcomePassed || secret == "" || secret == schema.OutcomePassed:
		return newOutcome(o)
	}
	return secretOutcome(secret)
}

// secretOutcome returns the part of a secret run's outcome that is shown: whose fault it
// was, no more, because a submission could leak a secret case by the way it fails.
func secretOutcome(name string) *Outcome {
	o, known := schema.FindOutcome(name)
	if !known {
		return nil
	}
	shown := map[string]string{schema.FaultSubmission: schema.OutcomeWrong, schema.FaultTask: schema.OutcomeHarness, schema.FaultLauncher: schema.OutcomeUnsupported, schema.FaultOperator: schema.OutcomeCanceled}[o.Fault]
	if shown == "" {
		shown = schema.OutcomeMachine
	}
	o, _ = schema.FindOutcome(shown)
	out := newOutcome(o)
	if out.Judged() {
		out.Text = "the secret run did not pass; how it failed is not shown"
		out.Next = "Look for what depends on the inputs of the public cases: the answer has to be right for other inputs, too."
	} else {
		out.Text = "the secret run has no result: " + out.Text
	}
	return out
}

// rowOutcomes derives outcomes from rows of runs, for submissions whose planned runs do
// not tell: those of Kernelbot, and those of older versions. The names are the public
// outcome and the secret one.
func (t *tx) rowOutcomes(byID map[int64]*Listed, want func(id int64) bool) map[int64][2]string {
	var args []any
	for id := range byID {
		if want(id) {
			args = append(args, id)
		}
	}
	if len(args) == 0 {
		return nil
	}
	field := func(column, key string) string {
		if t.db.Kind == database.Postgres {
			return fmt.Sprintf(`CASE WHEN passed THEN '' ELSE coalesce(%s->>'%s', '') END`, column, key)
		}
		return fmt.Sprintf(`CASE WHEN passed THEN '' ELSE coalesce(CAST(json_extract(%s, '$.%s') AS text), '') END`, column, key)
	}
	found := map[int64][2]string{}
	var id int64
	var secret, passed bool
	var gpu, compiled, success, status string
	t.each(dest{&id, &secret, &gpu, &passed, &compiled, &success, &status}, func() {
		names := found[id]
		at := 0
		if secret {
			at = 1
		}
		if l := byID[id]; (l.GPU == "" || l.GPU == gpu) && (names[at] == "" || names[at] == schema.OutcomePassed) {
			names[at] = rowOutcome(passed, compiled, success, status)
		}
		found[id] = names
	}, `SELECT submission_id, secret, runner, passed, `+field("compilation", "success")+`, `+field("meta", "success")+`, `+field("meta", "exit_code")+`
		FROM lb.runs WHERE submission_id IN (`+placeholders(0, len(args))+`) ORDER BY submission_id, id`, args...)
	return found
}

// rowOutcome is the outcome of one row of runs. Kernelbot's exit status of a run that
// passed its time limit is 114.
func rowOutcome(passed bool, compiled, success, status string) string {
	yes := func(s string) bool { return s == "1" || s == "true" }
	switch {
	case passed:
		return schema.OutcomePassed
	case compiled != "" && !yes(compiled):
		return schema.OutcomeCompileFailed
	case yes(success):
		return schema.OutcomeWrong
	case status == "114":
		return schema.OutcomeTimeout
	}
	return schema.OutcomeCrashed
}
