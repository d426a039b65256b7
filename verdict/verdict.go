package verdict

import (
	"errors"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Verdict is a result prepared for its readers.
type Verdict struct {
	RunID   string
	GPUType string // that the job was for; "" in results of older runners
	Queue   string
	Outcome schema.Outcome

	// Judged: the result says something about the submission. Otherwise the
	// machine, the task, the launcher or the runner is at fault.
	Judged bool
	Passed bool // every phase passed; implies Judged

	Runs []Run // the phases in the order they ran

	Score   *Ranked // nil without a leaderboard run that passed, or without a ranking
	NoScore string  // why a leaderboard run that passed has no score; "" otherwise

	Explanation *schema.Explanation   // what the submitter is told beyond the outcome; nil: nothing
	Device      string                // what it ran on, by its own name
	Harness     *schema.HarnessReport // which one judged; nil: none

	Ambiguous   []string // why a timing may not be the submission's own doing
	SharedJudge bool     // the submission could write its own report
	SelfChecked bool     // a pass is the submission's own word
}

// A Ranked score is what a leaderboard orders by.
type Ranked struct {
	Seconds float64 // lower is better
	Ranking string  // one of [schema.Rankings]
}

// Of reads a result. It leaves out the score, which needs the task's ranking:
// see [OfRanked].
//
// A result that names no outcome, which only a runner of another make writes,
// is no verdict: its outcome becomes unsupported.
func Of(r *schema.Result) *Verdict {
	o := r.Outcome
	if o.Name == "" {
		o = schema.NewOutcome(schema.OutcomeUnsupported, "the result names no outcome")
	}
	v := &Verdict{
		RunID: r.RunID, GPUType: r.GPUType, Queue: r.Queue, Outcome: o,
		Judged: o.Fault == schema.FaultNone || o.Fault == schema.FaultSubmission,
		Passed: o.Name == schema.OutcomePassed,

		Explanation: r.Explanation, Device: device(&r.System), Harness: r.Harness,
		Ambiguous: r.Ambiguous, SharedJudge: r.SharedJudge, SelfChecked: r.SelfChecked,
	}
	for _, run := range r.Runs {
		v.Runs = append(v.Runs, runOf(run.Name, &run.EvalResult))
		v.Runs[len(v.Runs)-1].measured(r.Measurements)
	}
	return v
}

// OfRanked is [Of] with the score under a ranking, one of [schema.Rankings]
// ("" is last).
func OfRanked(r *schema.Result, ranking string) *Verdict {
	v := Of(r)
	if ranking == "" {
		ranking = schema.RankLast
	}
	switch seconds, err := score(r, ranking); {
	case err == nil:
		v.Score = &Ranked{Seconds: seconds, Ranking: ranking}
	case !errors.Is(err, ErrNoScore):
		v.NoScore = err.Error()
	}
	return v
}

// Words are the outcome on one line, and whether another try is worth while:
// "wrong: a case failed its check: the answer is wrong".
func (v *Verdict) Words() string {
	s, fault := text.Line(v.Outcome.Name, maxLine), text.Line(v.Outcome.Fault, maxLine)
	if v.Outcome.Text != "" {
		s += ": " + text.Line(v.Outcome.Text, maxLine)
	}
	switch {
	case v.Judged:
	case v.Outcome.Retry:
		s += " (a fault of the " + fault + ", worth another try)"
	default:
		s += " (a fault of the " + fault + ")"
	}
	return s
}
