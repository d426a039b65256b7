// Package ranking holds the rules of a leaderboard: which submission ranks, with
// which score, and at which rank. It is pure; it knows no database.
package ranking

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// A Policy is what a board requires of a submission that ranks, beyond
// Kernelbot's rule. The zero Policy is that rule alone.
type Policy struct {
	Harness     string `json:"harness"`      // schema.HarnessIsolated, HarnessProved, or "" for any
	Sandbox     string `json:"sandbox"`      // the least of schema.SandboxLevels, or "" for any
	ClearTiming bool   `json:"clear_timing"` // no run whose timing may not be the submission's own doing
	Ties        bool   `json:"ties"`         // overlapping intervals share a rank
}

// HarnessProved is the isolated harness on a GPU for which kbrun prove has shown that it
// works there.
const HarnessProved = "proved"

// A Run is what [Decide] needs of one row of runs.
type Run struct {
	Mode    string
	Secret  bool
	Passed  bool
	Score   *float64 // seconds; nil: none
	Judging *Judging // nil: not known, as in rows that Kernelbot wrote
}

// Judging says how a run was judged.
type Judging struct {
	Harness     string // one of schema.Harnesses, "" when unknown
	SelfChecked bool
	Proved      bool   // see [HarnessProved]
	Sandbox     string // one of schema.SandboxLevels, "" when unknown
	Ambiguous   bool
	Low, High   *float64 // 95 % interval of the score, seconds; nil: none
}

// Facts are what decides about one submission on one GPU type.
type Facts struct {
	Hacked bool // by its own status or its job's
	Late   bool // accepted after the deadline

	PublicOpen, SecretOpen bool // a planned run has not finished
	Runs                   []Run
}

// A Decision says whether a submission ranks on a GPU type, and why not. It is
// written as it is by kbserve --json and by exports.
type Decision struct {
	GPU       string   `json:"gpu_type" parquet:"gpu_type,dict"`
	Ranks     bool     `json:"ranks" parquet:"ranks"`
	Reason    string   `json:"reason" parquet:"reason"`        // one line; "" when it ranks
	Score     *float64 `json:"score" parquet:"score,optional"` // of the public run, seconds; also where it does not rank
	Low, High *float64 `json:"-" parquet:"-"`
}

// Decide is the ranking rule. A submission ranks with its best public run that
// has a score and passed, when a secret leaderboard run of it passed and none
// failed, and the board's policy holds for the public run and the secret one.
func Decide(p Policy, f Facts) Decision {
	var best, refused, failed *Run
	why, secretWhy := "", ""
	secretPassed, secretFailed, secretGood := false, false, false
	for i := range f.Runs {
		r := &f.Runs[i]
		switch {
		case r.Secret && !r.Passed:
			secretFailed = true
		case r.Secret && r.Mode == schema.ModeLeaderboard:
			secretPassed = true
			if w := p.objection(r.Judging); w == "" {
				secretGood = true
			} else {
				secretWhy = w
			}
		case r.Secret:
		case r.Passed && r.Score != nil:
			if w := p.objection(r.Judging); w != "" {
				why = w
				if refused == nil || *r.Score < *refused.Score {
					refused = r
				}
			} else if best == nil || *r.Score < *best.Score {
				best = r
			}
		case !r.Passed:
			failed = r
		}
	}
	public := best
	if public == nil {
		public = refused
	}
	var v Decision
	if public != nil {
		v.Score = public.Score
		if public.Judging != nil {
			v.Low, v.High = public.Judging.Low, public.Judging.High
		}
	}
	switch {
	case f.Hacked:
		v.Reason = "marked as hacked"
	case f.Late:
		v.Reason = "after the deadline"
	case public == nil && failed != nil && !f.PublicOpen:
		v.Reason = "public run failed"
	case secretFailed:
		v.Reason = "secret run failed"
	case public == nil && f.PublicOpen:
		v.Reason = "public run not finished"
	case public == nil:
		v.Reason = "no public run with a score"
	case !secretPassed && f.SecretOpen:
		v.Reason = "secret run not finished"
	case !secretPassed:
		v.Reason = "no secret run that passed"
	case best == nil:
		v.Reason = why
	case !secretGood:
		v.Reason = secretWhy
	default:
		v.Ranks = true
	}
	return v
}

// objection is what the policy has against a run, "" for nothing.
func (p Policy) objection(j *Judging) string {
	if j == nil {
		j = &Judging{SelfChecked: true}
	}
	switch {
	case p.Harness != "" && j.SelfChecked:
		return "self-checked harness not admitted here"
	case p.Harness != "" && j.Harness != schema.HarnessIsolated:
		return fmt.Sprintf("harness %s not admitted here", cmp.Or(j.Harness, "unknown"))
	case p.Harness == HarnessProved && !j.Proved:
		return "no proof that the harness works on this GPU"
	case p.Sandbox != "" && level(j.Sandbox) < level(p.Sandbox):
		return fmt.Sprintf("sandbox %s, and this board wants %s", cmp.Or(j.Sandbox, "unknown"), p.Sandbox)
	case p.ClearTiming && j.Ambiguous:
		return "ambiguous timing not admitted here"
	}
	return ""
}

// level is the place of a sandbox level, -1 for none.
func level(name string) int { return slices.Index(schema.SandboxLevels(), name) }

// An Entry is one line of a ranking.
type Entry struct {
	Rank         int       `json:"rank"`
	Tied         bool      `json:"tied"`
	Score        float64   `json:"score"` // seconds
	Low, High    *float64  `json:"-"`     // 95 % interval, seconds; nil: none
	SubmissionID int64     `json:"submission_id"`
	FileName     string    `json:"file_name"`
	Time         time.Time `json:"submission_time"`
	UserID       string    `json:"user_id"`
	User         string    `json:"user_name"`
}

// Number gives entries, which are in order of their score, their ranks. Equal
// scores share a rank and the next rank is skipped, as in Kernelbot. With ties, an
// entry also shares the rank of a group if its interval reaches into that of the
// group's first entry.
func Number(entries []Entry, ties bool) {
	first := 0
	for i := range entries {
		e, head := &entries[i], &entries[first]
		same := e.Score == head.Score
		if ties && e.Low != nil && head.High != nil && *e.Low <= *head.High {
			same = true
		}
		if !same {
			first = i
		}
		e.Rank = first + 1
		if e.Tied = i > first; e.Tied {
			entries[first].Tied = true
		}
	}
}

// Equal reports whether two decisions are the same.
func (v Decision) Equal(o Decision) bool {
	return v.GPU == o.GPU && v.Ranks == o.Ranks && v.Reason == o.Reason && equal(v.Score, o.Score) && equal(v.Low, o.Low) && equal(v.High, o.High)
}

func equal(a, b *float64) bool { return a == b || a != nil && b != nil && *a == *b }
