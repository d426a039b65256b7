package store

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/queue"
	"github.com/gpu-mode/kbgen/store/ranking"
)

var steps = flag.Int("steps", 1000, "random steps of TestSlowStandingsFollowTheRuns")
var randomSeed = flag.Uint64("random-seed", 1, "of TestStandingsFollowTheRuns and its slow twin")

type ranked struct {
	rank  int
	user  string
	score float64
}

// kernelbot is its ranking of a board on a GPU, written from the description of
// its query: of the public runs with a score that passed, on that GPU, of
// submissions that are not hacked, whose secret leaderboard run on the same GPU
// passed and none of whose secret runs there failed, each user's best.
func kernelbot(t *testing.T, s *Store, board, gpu string, isolated bool) []ranked {
	t.Helper()
	extra := ""
	if isolated { // what a board that admits no self-checked harness adds
		extra = ` AND EXISTS (SELECT 1 FROM own.run_evidence e WHERE e.run_id = r.id AND e.harness = 'isolated' AND NOT e.self_checked)
			AND EXISTS (SELECT 1 FROM lb.runs x JOIN own.run_evidence e ON e.run_id = x.id WHERE x.submission_id = s.id AND x.runner = r.runner AND x.secret AND x.passed AND x.mode = 'leaderboard' AND e.harness = 'isolated' AND NOT e.self_checked)`
	}
	var list []ranked
	err := s.db.Each(context.Background(), s.db.Read, func(rows *sql.Rows) error {
		var r ranked
		err := rows.Scan(&r.user, &r.score, &r.rank)
		list = append(list, r)
		return err
	}, `WITH good AS (
			SELECT s.user_id, CAST(min(r.score) AS double precision) AS score
			FROM lb.runs r, lb.submission s, lb.leaderboard l
			WHERE r.submission_id = s.id AND s.leaderboard_id = l.id AND l.name = $1 AND r.runner = $2
				AND r.secret = false AND r.score IS NOT NULL AND r.passed = true AND s.status <> 'hacked'
				AND s.id NOT IN (SELECT j.submission_id FROM lb.submission_job_status j WHERE j.status = 'hacked')
				AND s.id IN (SELECT x.submission_id FROM lb.runs x WHERE x.secret AND x.passed AND x.mode = 'leaderboard' AND x.runner = $2)
				AND s.id NOT IN (SELECT x.submission_id FROM lb.runs x WHERE x.secret AND NOT x.passed AND x.runner = $2)`+extra+`
			GROUP BY s.user_id)
		SELECT user_id, score, rank() OVER (ORDER BY score) FROM good`, board, gpu)
	if err != nil {
		t.Fatal(err)
	}
	sortRanked(list)
	return list
}

func sortRanked(list []ranked) {
	slices.SortFunc(list, func(a, b ranked) int { // the order among equals is nobody's promise
		if a.rank != b.rank {
			return a.rank - b.rank
		}
		return slices.Compare([]byte(a.user), []byte(b.user))
	})
}

func ours(t *testing.T, s *Store, board, gpu string) []ranked {
	t.Helper()
	page, _, err := s.Page(context.Background(), board, gpu, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var list []ranked
	for _, e := range page {
		if e.FileName != "submission.py" || e.User != "user "+e.UserID || e.Time.IsZero() {
			t.Fatalf("Page(%s, %s) has %+v", board, gpu, e)
		}
		list = append(list, ranked{e.Rank, e.UserID, e.Score})
	}
	sortRanked(list)
	return list
}

// checkCache compares the cached lists of a ranking with its rows, whatever they
// show: see versioned for what invalidates them.
func checkCache(t *testing.T, s *Store, board, gpu, what string) {
	t.Helper()
	ctx := t.Context()
	entries, _, err := s.Page(ctx, board, gpu, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := s.History(ctx, board, gpu, "")
	if err != nil {
		t.Fatal(err)
	}
	rows := &tx{Store: s, ctx: ctx, on: s.db.Read}
	id, _ := rows.version(board)
	wantEntries := rows.ranking(boardGPU{id, gpu})
	wantSteps := rows.steps(boardGPU{id, gpu}, "")
	if err := rows.err; err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantEntries, entries, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s: the cached ranking of %s on %s is out of date (-rows +cached):\n%s", what, board, gpu, diff)
	}
	if diff := cmp.Diff(wantSteps, steps, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s: the cached history of %s on %s is out of date (-rows +cached):\n%s", what, board, gpu, diff)
	}
}

// After every random step the kept standings are what a plain query over the runs
// says, on a board with Kernelbot's rule and on one with a policy that comes and
// goes; and so another instance shows them, which keeps what it has read.
func TestStandingsFollowTheRuns(t *testing.T) {
	standingsFollowTheRuns(t, 350)
}

func TestSlowStandingsFollowTheRuns(t *testing.T) {
	testenv.NeedSlow(t)
	standingsFollowTheRuns(t, *steps)
}

func standingsFollowTheRuns(t *testing.T, steps int) {
	bothShared(t, func(t *testing.T, s, other *Store) {
		ctx := context.Background()
		strict := testBoard("strict")
		strict.Policy = &ranking.Policy{Harness: schema.HarnessIsolated}
		save(t, s, testBoard("plain"), strict)
		boards, gpus := []string{"plain", "strict"}, []string{"H100", "B200"}
		isolated := true
		rnd := rand.New(rand.NewPCG(*randomSeed, 12))
		var submissions []int64
		done := map[string]int{}
		most := 0
		for step := range steps {
			what := []string{"submit", "submit", "finish", "finish", "finish", "finish", "delete", "hack", "ban", "late", "cancel", "rename", "policy", "again", "all again"}[rnd.IntN(15)]
			var err error
			switch {
			case what == "submit":
				in := submission(boards[rnd.IntN(2)], gpus[rnd.IntN(2)], fmt.Sprint(1000+rnd.IntN(12)))
				in.Code = fmt.Appendf(in.Code, "%d", rnd.IntN(50))
				if rnd.IntN(8) == 0 {
					in.Mode = schema.ModeTest
				}
				var out Accepted
				out, err = s.Accept(ctx, in)
				var refused *Refusal
				if errors.As(err, &refused) && refused.Why == Banned {
					what, err = "refuse", nil
				} else {
					submissions = append(submissions, out.ID)
				}
			case what == "finish":
				var claimed []PlannedRun
				if claimed, err = s.Claim(ctx, "test", 1, nil, time.Hour); err == nil && len(claimed) == 1 {
					r := result(rnd.IntN(8) > 0, float64(1000+100*rnd.IntN(30)))
					if rnd.IntN(4) == 0 {
						selfChecked(r)
					}
					if r.Success = rnd.IntN(12) > 0; !r.Success {
						r.Error = "the machine went away"
					}
					err = s.Record(ctx, claimed[0], r, nil)
				}
			case len(submissions) == 0 || (what == "delete" || what == "hack" || what == "cancel" || what == "policy" || what == "all again") && rnd.IntN(3) > 0:
				continue // so that boards fill
			default:
				i := rnd.IntN(len(submissions))
				switch what {
				case "delete":
					err = s.Delete(ctx, submissions[i])
					submissions = slices.Delete(submissions, i, i+1)
				case "hack":
					err = s.MarkHacked(ctx, submissions[i], "it slept")
				case "ban":
					err = s.Ban(ctx, fmt.Sprint(1000+rnd.IntN(12)), rnd.IntN(3) == 0)
					if errors.Is(err, ErrNotFound) {
						err = nil
					}
				case "cancel":
					_, err = s.CancelSubmission(ctx, submissions[i], "nobody wants it")
					var refused *Refusal
					if errors.As(err, &refused) && refused.Why == Finished {
						what, err = "finished", nil
					}
				case "again":
					err = s.Plan(ctx, submissions[i], append(gpus, "")[rnd.IntN(3)], 0)
					var refused *Refusal
					if errors.As(err, &refused) {
						what, err = "not again", nil
					}
				case "all again":
					_, err = s.Rejudge(ctx, boards[rnd.IntN(2)], Rejudging{All: rnd.IntN(2) == 0, Priority: queue.PriorityBulk})
				case "rename":
					err = renamed(s, other, fmt.Sprint(1000+rnd.IntN(12)))
				case "policy":
					isolated = !isolated
					strict.Policy = &ranking.Policy{}
					if isolated {
						strict.Policy.Harness = schema.HarnessIsolated
					}
					_, err = s.SaveBoards(ctx, []Board{strict}, SaveOptions{})
				case "late":
					err = s.verify(ctx, submissions[i], gpus[rnd.IntN(2)], true, result(rnd.IntN(2) == 0, 1000))
				}
			}
			if err != nil {
				t.Fatalf("step %d, %s: %v", step, what, err)
			}
			done[what]++
			if what == "submit" || what == "refuse" || what == "ban" {
				if rnd.IntN(10) > 0 {
					continue
				}
			}
			for _, board := range boards {
				for _, gpu := range gpus {
					got, want := ours(t, other, board, gpu), kernelbot(t, s, board, gpu, board == "strict" && isolated)
					if diff := cmp.Diff(want, got, cmp.AllowUnexported(ranked{})); diff != "" {
						t.Fatalf("step %d, %s: standings of %s on %s (-plain query +kept):\n%s", step, what, board, gpu, diff)
					}
					most = max(most, len(got))
					checkCache(t, other, board, gpu, fmt.Sprintf("step %d, %s", step, what))
				}
			}
		}
		for _, what := range []string{"submit", "refuse", "finish", "delete", "hack", "ban", "late", "cancel", "rename", "policy", "again", "all again"} {
			if done[what] == 0 && steps >= 1000 {
				t.Errorf("no step was %s: %v", what, done)
			}
		}
		if least := min(5, steps/100); most < least {
			t.Errorf("the longest ranking had %d users, want %d", most, least)
		}
		t.Logf("steps %v, longest ranking %d", done, most)
		if faults, err := s.Check(ctx); err != nil || len(faults) > 0 {
			t.Errorf("Check says %q, %v", faults, err)
		}
		before := ours(t, s, "plain", "H100")
		if _, err := s.db.Exec(ctx, s.db.Write, `UPDATE own.standing SET score = score * 2`); err != nil {
			t.Fatal(err)
		}
		if faults, err := s.Check(ctx); err != nil || len(faults) == 0 {
			t.Errorf("Check after a change behind its back says %q, %v", faults, err)
		}
		if _, err := s.Rebuild(ctx); err != nil {
			t.Fatal(err)
		}
		if faults, err := s.Check(ctx); err != nil || len(faults) > 0 {
			t.Errorf("Check after Rebuild says %q, %v", faults, err)
		}
		if diff := cmp.Diff(before, ours(t, s, "plain", "H100"), cmp.AllowUnexported(ranked{})); diff != "" {
			t.Errorf("Rebuild changed the ranking:\n%s", diff)
		}
	})
}

// renamed gives a user another name and their own again, and checks that another
// instance shows it meanwhile.
func renamed(s, other *Store, user string) error {
	ctx := context.Background()
	for _, name := range []string{"another " + user, "user " + user} {
		if _, err := s.LogIn(ctx, "github", user, name); err != nil {
			return err
		}
		page, _, err := other.Page(ctx, "plain", "H100", 0, 0)
		if err != nil {
			return err
		}
		for _, e := range page {
			if e.UserID == user && e.User != name {
				return fmt.Errorf("user %s is shown as %q, want %q", user, e.User, name)
			}
		}
	}
	return nil
}
