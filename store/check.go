package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/ranking"
)

// maxFaults is how many differences [Store.Check] lists.
const maxFaults = 20

// Check compares verdicts and standings with what the runs say, on one state of
// the database, and returns the differences, one line each, the first of many. A
// server of Kernelbot's that writes to the same tables makes some.
func (s *Store) Check(ctx context.Context) (faults []string, err error) {
	fault := func(format string, args ...any) {
		if len(faults) < maxFaults {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	err = s.snapshot(ctx, "checking the standings", func(t *tx) {
		faults = nil
		t.all(func(list []judged) {
			if len(list) == 0 {
				return
			}
			stored := t.stored(list[0].id, list[len(list)-1].id)
			for _, j := range list {
				for _, v := range j.verdicts {
					got, ok := stored[key{j.id, v.GPU}]
					delete(stored, key{j.id, v.GPU})
					if !ok || !got.Equal(v) {
						fault("submission %d on %s: the kept verdict is %s, want %s", j.id, v.GPU, verdictWords(got, ok), verdictWords(v, true))
					}
				}
			}
			for k := range stored {
				fault("submission %d on %s: a verdict is kept, want none", k.id, k.gpu)
			}
		})
		for _, way := range []struct{ statement, words string }{
			{`SELECT leaderboard_id, gpu, user_id, submission_id FROM (` + bestVerdicts + ` EXCEPT SELECT leaderboard_id, gpu, user_id, submission_id, score, low, high FROM own.standing) d ORDER BY 1, 2, 3`, "missing"},
			{`SELECT leaderboard_id, gpu, user_id, submission_id FROM (SELECT leaderboard_id, gpu, user_id, submission_id, score, low, high FROM own.standing EXCEPT ` + bestVerdicts + `) d ORDER BY 1, 2, 3`, "kept, and should not be"},
		} {
			var p place
			var id int64
			t.each(to{&p.board, &p.gpu, &p.user, &id}, func() {
				fault("standing of user %s on %s of board %d (submission %d): %s", p.user, p.gpu, p.board, id, way.words)
			}, way.statement)
		}
	})
	return faults, err
}

type key struct {
	id  int64
	gpu string
}

func (t *tx) stored(first, last int64) map[key]ranking.Decision {
	stored := map[key]ranking.Decision{}
	var id int64
	var v ranking.Decision
	t.each(to{&id, &v.GPU, &v.Ranks, &v.Reason, &v.Score, &v.Low, &v.High}, func() { stored[key{id, v.GPU}] = v }, `SELECT submission_id, gpu, ranks, reason, score, low, high FROM own.verdict WHERE submission_id BETWEEN $1 AND $2`, first, last)
	return stored
}

// verdicts are those of one submission, by GPU type.
func (t *tx) verdicts(submission int64) []ranking.Decision {
	list := slices.Collect(maps.Values(t.stored(submission, submission)))
	slices.SortFunc(list, func(a, b ranking.Decision) int { return strings.Compare(a.GPU, b.GPU) })
	return list
}

func verdictWords(v ranking.Decision, there bool) string {
	switch {
	case !there:
		return "missing"
	case v.Ranks && v.Score != nil:
		return "ranks with " + schema.FloatRepr(*v.Score) + " s"
	case v.Ranks:
		return "ranks"
	}
	return "does not rank: " + v.Reason
}
