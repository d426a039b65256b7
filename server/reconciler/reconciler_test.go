package reconciler

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

func TestEachSubmissionIsEvaluatedOnce(t *testing.T) {
	for kind, open := range servertest.Stores {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, open(t), nil)
			const n = 12
			var ids []int64
			for i := range n {
				ids = append(ids, r.submit(string(rune('1'+i%3))))
			}
			r.machines(4, nil)
			r.run()
			for range n {
				r.await(Recorded)
			}
			for _, id := range ids {
				if status, why, done := r.job(id); status != store.StatusSucceeded || !done {
					t.Errorf("submission %d is %s (%s), done %v", id, status, why, done)
				}
			}
			if made := len(r.builds()); made != n {
				t.Errorf("%d builds of %d submissions", made, n)
			}
		})
	}
}

// A token that is no longer good, or sees no pipeline, says nothing about runs.
func TestRefusalsOfEveryQuestionFailNoRun(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, servertest.SQLite(t), nil)
			a, b := r.submit("1"), r.submit("2")
			r.run()
			r.await(Created)
			r.await(Created)
			r.api.set(func(*http.Request) (int, string) { return status, `{"message": "no"}` })
			r.await(Postponed)
			r.await(Postponed)
			for _, id := range []int64{a, b} {
				if _, why, done := r.job(id); done {
					t.Errorf("submission %d ended (%s) because Buildkite answered %d", id, why, status)
				}
			}
			r.api.set(nil)
			r.machines(1, nil)
			r.await(Recorded)
			r.await(Recorded)
			if made := len(r.builds()); made != 2 {
				t.Errorf("%d builds of 2 submissions", made)
			}
		})
	}
}

// A build that is gone while others are seen has no result any more.
func TestBuildThatIsGoneFailsItsRun(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	id := r.submit("1")
	r.run()
	r.await(Created)
	r.api.set(func(q *http.Request) (int, string) {
		if strings.HasSuffix(q.URL.Path, "/builds") {
			return http.StatusOK, "[]"
		}
		return http.StatusNotFound, `{"message": "Not Found"}`
	})
	r.await(Failed)
	if status, why, _ := r.job(id); status != store.StatusFailed || !strings.Contains(why, "its build 1 is gone") || r.outcome(id) != schema.OutcomeCanceled {
		t.Errorf("got %s, %q", status, why)
	}
}

// 422 may be about the pipeline: then all wait, and the cause is put right.
func TestRefusedBuildWaitsBeforeItFails(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	refuse := func(q *http.Request) (int, string) {
		if q.Method == http.MethodPost {
			return http.StatusUnprocessableEntity, `{"message": "Branches have been disabled for this pipeline"}`
		}
		return 0, ""
	}
	r.api.set(refuse)
	id := r.submit("1")
	stop := r.run()
	r.await(Postponed)
	if _, why, done := r.job(id); done {
		t.Fatalf("the first refusal ended it: %s", why)
	}
	r.api.set(nil)
	r.machines(1, nil)
	r.await(Recorded)
	stop()

	late := r.submit("2")
	runs, err := r.s.Claim(context.Background(), "test", 1, nil, time.Minute)
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	r.api.set(refuse)
	runs[0].Started = time.Now().Add(-2 * refusedTime)
	(&work{r: r.Reconciler, p: runs[0]}).do(context.Background())
	if status, why, _ := r.job(late); status != store.StatusFailed || !strings.Contains(why, "Branches have been disabled") || r.outcome(late) != schema.OutcomeUnsupported {
		t.Errorf("refused for long: %s, %q", status, why)
	}
}

// The result of another GPU type is not taken.
func TestResultOfTheWrongMachineFailsItsRun(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	id := r.submit("1")
	r.machines(1, func(run, gpu, queue, mode string) *schema.Result { return passed(run, "B200", queue, mode) })
	r.run()
	r.await(Failed)
	if status, why, _ := r.job(id); status != store.StatusFailed || !strings.Contains(why, "B200, which is the wrong machine") || r.outcome(id) != schema.OutcomeWrongMachine {
		t.Errorf("got %s, %q", status, why)
	}
}

func TestBuildCancelledByHandFailsItsRun(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	id := r.submit("1")
	r.run()
	r.await(Created)
	if _, err := r.standIn.Engine.CancelBuild(r.standIn.Engine.Builds(engine.BuildFilter{})[0].ID); err != nil {
		t.Fatal(err)
	}
	r.await(Failed)
	if status, why, _ := r.job(id); status != store.StatusFailed || !strings.Contains(why, "cancel") || r.outcome(id) != schema.OutcomeCanceled {
		t.Errorf("got %s, %q", status, why)
	}
}

// What a submitter cancels stops at Buildkite too, whether or not it is deleted.
func TestCancelledSubmissionLeavesNoBuild(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		r := newRig(t, servertest.SQLite(t), nil)
		id := r.submit("1")
		r.run()
		r.await(Created)
		ctx := context.Background()
		builds, err := r.s.CancelSubmission(ctx, id, "no longer wanted")
		if err == nil && deleted {
			err = r.s.Delete(ctx, id)
		}
		if err != nil || len(builds) != 1 {
			t.Fatal(builds, err)
		}
		r.Drop(builds)
		waiting, stop := context.WithTimeout(ctx, patience)
		b, err := r.standIn.Engine.Wait(waiting, r.builds()[0].ID)
		stop()
		if err != nil || b.State != "canceled" {
			t.Errorf("deleted %v: its build is %s, %v", deleted, b.State, err)
		}
	}
}

// A command that cancels, deletes or marks a submission, or deletes its board, cannot
// cancel builds: the process that works on the run does.
func TestChangesByCommandsLeaveNoBuild(t *testing.T) {
	for name, change := range map[string]func(ctx context.Context, r *rig, id int64) error{
		"cancel": func(ctx context.Context, r *rig, id int64) error {
			_, err := r.s.CancelSubmission(ctx, id, "no longer wanted")
			return err
		},
		"delete": func(ctx context.Context, r *rig, id int64) error { return r.s.Delete(ctx, id) },
		"hacked": func(ctx context.Context, r *rig, id int64) error { return r.s.MarkHacked(ctx, id, "it cheats") },
		"board": func(ctx context.Context, r *rig, _ int64) error {
			_, err := r.s.DeleteBoard(ctx, "sort", true)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, servertest.SQLite(t), func(o *Options) { o.Lease = 2 * time.Second })
			id := r.submit("1")
			r.run()
			r.await(Created)
			build := r.builds()[0].ID
			if err := change(context.Background(), r, id); err != nil {
				t.Fatal(err)
			}
			waiting, stop := context.WithTimeout(context.Background(), patience)
			defer stop()
			if b, err := r.standIn.Engine.Wait(waiting, build); err != nil || b.State != "canceled" {
				t.Errorf("its build is %s, %v", b.State, err)
			}
		})
	}
}

// A process that stops leaves its builds alone, and the next one takes them over at
// once.
func TestNextProcessAdoptsBuilds(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	id := r.submit("1")
	stop := r.run()
	r.await(Created)
	stop()
	if r.Working() != 0 {
		t.Errorf("%d runs in hand after the stop", r.Working())
	}
	next := New(r.o)
	r.Reconciler = next
	r.machines(1, nil)
	r.run()
	r.await(Recorded)
	if status, why, _ := r.job(id); status != store.StatusSucceeded || len(r.builds()) != 1 {
		t.Errorf("got %s (%s), %d builds", status, why, len(r.builds()))
	}
}

// A run that this process lost and has claimed again stays in its books when the
// work that lost it ends.
func TestWorkThatLostItsRunLeavesTheNewOneInTheBooks(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	r.submit("1")
	stop := r.run()
	r.await(Created)
	r.mu.Lock()
	var other *work
	for id, w := range r.working {
		other = &work{r: r.Reconciler, p: w.p}
		r.working[id] = other
	}
	r.mu.Unlock()
	if other == nil {
		t.Fatal("nothing in hand")
	}
	stop()
	if r.Working() != 1 {
		t.Errorf("%d runs in hand, want the one that was claimed again", r.Working())
	}
}

// Runs on a GPU type that is switched off wait; on one that nobody knows they fail.
// Names are compared in any case.
func TestGPUTypesThatTheFleetDoesNotServe(t *testing.T) {
	for _, c := range []struct {
		fleet pipelines.Table
		want  string
	}{
		{pipelines.Table{{Name: "H100", Queue: "h100", Off: "moved"}, {Name: "B200", Queue: "b200"}}, ""},
		{pipelines.Table{{Name: "B200", Queue: "b200"}}, store.StatusFailed},
		{pipelines.Table{{Name: "h100", Queue: "h100"}}, store.StatusSucceeded},
	} {
		r := newRig(t, servertest.SQLite(t), func(o *Options) { o.Fleet = c.fleet })
		id := r.submit("1")
		r.machines(1, nil)
		if c.want == "" {
			claimed, err := r.s.Claim(context.Background(), "test", 9, r.room(context.Background()), time.Minute)
			if err != nil || len(claimed) != 0 {
				t.Errorf("switched off: claimed %+v, %v", claimed, err)
			}
			status, err := r.Status(context.Background())
			if _, _, done := r.job(id); done || err != nil || len(status) != 2 || status[0].Off != "moved" || status[0].Waiting != 1 {
				t.Errorf("switched off: done %v, %+v, %v", done, status, err)
			}
			continue
		}
		r.run()
		r.await(map[string]EventKind{store.StatusFailed: Failed, store.StatusSucceeded: Recorded}[c.want])
		if status, why, _ := r.job(id); status != c.want {
			t.Errorf("fleet %s: %s (%s), want %s", c.fleet[0].Name, status, why, c.want)
		}
	}
}

// A result that the database refuses ends its run; it is not tried for ever.
func TestResultThatCannotBeKeptFailsItsRun(t *testing.T) {
	r := newRig(t, servertest.Postgres(t), nil)
	id := r.submit("1")
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	claimed, err := r.s.Claim(ctx, "test", 1, nil, time.Hour)
	if err != nil || len(claimed) != 1 {
		t.Fatal(claimed, err)
	}
	res := passed(claimed[0].RunID, "H100", "h100", schema.ModeTest)
	res.Runs[0].Start = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC) // PostgreSQL knows no year 0
	e := (&work{r: r.Reconciler, p: claimed[0]}).record(ctx, &launcher.Report{Result: res, Raw: []byte("{}")})
	if status, why, _ := r.job(id); e.err != nil || status != store.StatusFailed || !strings.Contains(why, "cannot be kept") {
		t.Errorf("got %v, %s, %q", e.err, status, why)
	}
}

// Where a submission stands is how many runs go before it, and how long those take on
// the machines there are.
func TestWaitTellsThePlaceInLine(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	ctx := context.Background()
	var ids []int64
	for i := range 6 {
		ids = append(ids, r.submit(string(rune('1'+i))))
	}
	claimed, err := r.s.Claim(ctx, "test", 1, nil, time.Hour)
	if err == nil && len(claimed) == 1 {
		err = r.s.Creating(ctx, claimed[0])
	}
	if err != nil || len(claimed) != 1 || claimed[0].Submission != ids[0] {
		t.Fatal(claimed, err)
	}
	r.Reconciler.machines.known, r.Reconciler.machines.byQueue = true, map[string]launcher.Serving{"h100": {Agents: 2}}
	r.line.typical, r.line.measured = map[string]time.Duration{"H100\x00test": time.Hour}, time.Now()
	for i, id := range ids {
		w, found, err := r.Wait(ctx, id)
		switch {
		case err != nil || !found || w.GPU != "H100" || w.Running != (i == 0):
			t.Errorf("submission %d: %+v, %v, %v", i, w, found, err)
		case i == 0 && (w.Place != 0 || w.Expected != 0):
			t.Errorf("the one that runs: %+v", w)
		case i > 0 && (w.Place != i-1 || w.Expected.Round(5*time.Minute) != time.Duration(i)*30*time.Minute):
			t.Errorf("submission %d: %+v, want %d before it and about %v", i, w, i-1, time.Duration(i)*30*time.Minute)
		}
	}
	if _, found, err := r.Wait(ctx, 4711); found || err != nil {
		t.Errorf("a submission that is not there: %v, %v", found, err)
	}
}

// A long line is not read again for everybody who asks.
func TestLongLineIsReadNowAndThen(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	c := &r.line
	c.read, c.took = time.Now().Add(-time.Second), time.Minute
	c.forget()
	if runs, _, err := r.get(context.Background()); c.read.IsZero() || runs != nil || err != nil {
		t.Errorf("a line that took %v to read is read again after a second: %v", c.took, err)
	}
}

// A list of agents that fails for a moment does not shrink the room for a large fleet;
// a token that may not list them does.
func TestNumberOfMachinesOutlivesAFailure(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), func(o *Options) { o.Room = 3 })
	ctx := context.Background()
	m := &r.Reconciler.machines
	for range 20 {
		a, _, err := r.standIn.Engine.Register(engine.AgentInfo{Name: "machine", Tags: []string{"queue=h100"}})
		if err == nil {
			err = r.standIn.Engine.Connect(a.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.refresh(ctx)
	if got := r.places("h100"); got != 30 {
		t.Fatalf("room for %d builds with 20 machines", got)
	}
	for _, c := range []struct{ status, want int }{{http.StatusNotFound, 30}, {http.StatusForbidden, 3}} {
		r.api.set(func(*http.Request) (int, string) { return c.status, `{"message": "no"}` })
		m.mu.Lock()
		m.asked = time.Time{} // as at first, when it is waited for
		m.mu.Unlock()
		r.refresh(ctx)
		if got := r.places("h100"); got != c.want {
			t.Errorf("after %d: room for %d builds, want %d", c.status, got, c.want)
		}
	}
}

// A process that stops cancels first what it promised to.
func TestStopWaitsForWhatIsDropped(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), nil)
	id := r.submit("1")
	r.run()
	r.await(Created)
	asked, goOn := make(chan struct{}, 9), make(chan struct{})
	r.api.before(func(q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/cancel") {
			asked <- struct{}{}
			<-goOn
		}
	})
	builds, err := r.s.CancelSubmission(context.Background(), id, "no longer wanted")
	if err != nil {
		t.Fatal(err)
	}
	r.Drop(builds)
	<-asked
	short, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop()
	r.Dropped(short) // which has no time
	close(goOn)
	long, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	r.Dropped(long)
	if b := r.builds()[0]; b.State != "canceled" && b.State != "canceling" {
		t.Errorf("its build is %s", b.State)
	}
}

// While Buildkite makes no builds, runs beyond MaxCreating stay in the store's queue,
// where users take turns. As builds are made, the next runs are claimed.
func TestFewRunsAreClaimedWithoutABuild(t *testing.T) {
	r := newRig(t, servertest.SQLite(t), func(o *Options) { o.Room = 1000 })
	goOn := make(chan struct{})
	asked := make(chan struct{}, 1000)
	r.api.before(func(q *http.Request) {
		if q.Method == http.MethodPost {
			asked <- struct{}{}
			<-goOn
		}
	})
	r.api.set(func(q *http.Request) (int, string) {
		if strings.HasSuffix(q.URL.Path, "/agents") {
			return http.StatusForbidden, `{"message": "no"}` // so that Room counts
		}
		return 0, ""
	})
	const runs = MaxCreating + 3
	for i := range runs {
		r.submit(fmt.Sprint(i + 1))
	}
	r.run()
	for range 20 { // of those that the quota lets through at once
		<-asked
	}
	for deadline := time.Now().Add(patience); r.Working() < MaxCreating && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	r.Wake()
	time.Sleep(2 * r.o.Sweep)
	if n := r.Working(); n != MaxCreating {
		t.Errorf("%d runs are claimed and have no build, want %d", n, MaxCreating)
	}
	close(goOn)
	for range MaxCreating/2 + 3 { // the quota's burst lets these through
		r.await(Created)
	}
	for deadline := time.Now().Add(patience); r.Working() < runs; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d runs are claimed after some have builds, want %d", r.Working(), runs)
		}
	}
}
