package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestOrder(t *testing.T) {
	for _, tt := range []struct {
		name, yaml string
		status     map[string]int
		ran        string
		states     string
		build      BuildState
	}{
		{
			name: "steps run in order and pass",
			yaml: "steps: [{command: a, key: a}, {command: b, key: b}]",
			ran:  "a b", states: "a=passed b=passed", build: BuildPassed,
		},
		{
			name:   "wait holds back and fails what follows",
			yaml:   "steps: [{command: a, key: a}, {command: b, key: b}, wait, {command: c, key: c}]",
			status: map[string]int{"a": 1},
			ran:    "a b", states: "a=failed b=passed c=waiting_failed", build: BuildFailed,
		},
		{
			name:   "continue_on_failure goes on, also behind a wait that broke",
			yaml:   "steps: [{command: a, key: a}, wait, {command: b, key: b}, {wait: ~, continue_on_failure: true}, {command: c, key: c}]",
			status: map[string]int{"a": 1},
			ran:    "a c", states: "a=failed b=waiting_failed c=passed", build: BuildFailed,
		},
		{
			name: "depends_on replaces the wait before it",
			yaml: "steps: [{command: a, key: a}, wait, {command: b, key: b, depends_on: []}, {command: c, key: c, depends_on: b}, {command: d, key: d}]",
			ran:  "a b c d", states: "a=passed b=passed c=passed d=passed", build: BuildPassed,
		},
		{
			name:   "a failed dependency breaks its dependants only",
			yaml:   "steps: [{command: a, key: a}, {command: b, key: b, depends_on: a}, {command: c, key: c, depends_on: [{step: a, allow_failure: true}]}, {command: d, key: d, depends_on: b}]",
			status: map[string]int{"a": 1},
			ran:    "a c", states: "a=failed b=waiting_failed c=passed d=waiting_failed", build: BuildFailed,
		},
		{
			name:   "allow_dependency_failure",
			yaml:   "steps: [{command: a, key: a}, {command: b, key: b, depends_on: a, allow_dependency_failure: true}]",
			status: map[string]int{"a": 1},
			ran:    "a b", states: "a=failed b=passed", build: BuildFailed,
		},
		{
			name:   "soft_fail passes for the build and for dependants",
			yaml:   "steps: [{command: a, key: a, soft_fail: [{exit_status: 3}]}, {command: b, key: b, depends_on: a}, wait, {command: c, key: c}]",
			status: map[string]int{"a": 3},
			ran:    "a b c", states: "a=failed b=passed c=passed", build: BuildPassed,
		},
		{
			name:   "soft_fail of another status does not help",
			yaml:   "steps: [{command: a, key: a, soft_fail: [{exit_status: 3}]}, wait, {command: c, key: c}]",
			status: map[string]int{"a": 4},
			ran:    "a", states: "a=failed c=waiting_failed", build: BuildFailed,
		},
		{
			name:   "a group is one dependency",
			yaml:   "steps: [{group: g, key: g, steps: [{command: a, key: a}, {command: b, key: b}]}, {command: c, key: c, depends_on: g}]",
			status: map[string]int{"b": 1},
			ran:    "a b", states: "a=passed b=failed c=waiting_failed", build: BuildFailed,
		},
		{
			name: "a wait in a group divides the group only, a group waits as one",
			yaml: "steps: [{command: x, key: x}, wait, {group: g, steps: [{command: a, key: a}, wait, {command: b, key: b}]}, {command: c, key: c}, wait, {command: d, key: d}]",
			ran:  "x a b c d", states: "x=passed a=passed b=passed c=passed d=passed", build: BuildPassed,
		},
		{
			name: "if, branches and skip take steps out and dependants ignore them",
			yaml: "steps: [{command: a, key: a, if: 'build.branch == \"other\"'}, {command: b, key: b, branches: 'release/*'}, {command: c, key: c, skip: not today}, {command: d, key: d, depends_on: [a, b, c]}]",
			ran:  "d", states: "a=broken b=broken c=skipped d=passed", build: BuildPassed,
		},
		{
			name:  "nothing left to run",
			yaml:  "steps: [{command: a, key: a, skip: true}, wait, {command: b, key: b, branches: '!main'}]",
			build: BuildNotRun, states: "a=skipped b=broken",
		},
		{
			name: "parallelism makes indexed jobs",
			yaml: "steps: [{command: a, key: a, parallelism: 3}, wait, {command: b, key: b}]",
			ran:  "a/0 a/1 a/2 b", states: "a/0=passed a/1=passed a/2=passed b=passed", build: BuildPassed,
		},
		{
			name: "priority goes before age",
			yaml: "steps: [{command: a, key: a}, {command: b, key: b, priority: 5}, {command: c, key: c, priority: -1}, {command: d, key: d}]",
			ran:  "b a d c", states: "a=passed b=passed c=passed d=passed", build: BuildPassed,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newRig(t)
			b := w.build(tt.yaml)
			ran := strings.Join(w.run(tt.status), " ")
			b = w.get(b)
			equal(t, "ran", ran, tt.ran)
			equal(t, "states", states(b), tt.states)
			equal(t, "build", b.State, tt.build)
			if b.FinishedAt.IsZero() {
				t.Error("the build has no finished_at")
			}
		})
	}
}

func TestTagsChooseTheAgent(t *testing.T) {
	w := newRig(t)
	b := w.build("agents: {queue: gpu}\nsteps: [{command: a, key: a}, {command: b, key: b, agents: {queue: cpu}}, {command: c, key: c, agents: [queue=gpu, size=*]}]")
	plain, big, cpu := w.agent("queue=gpu"), w.agent("queue=gpu", "size=9"), w.agent("queue=cpu")
	for _, tt := range []struct{ agent, want string }{{plain, "a"}, {plain, ""}, {big, "c"}, {cpu, "b"}} {
		got := w.take(tt.agent)
		if got != "" {
			j, _ := w.Job(got)
			w.finish(got, 0)
			got = j.StepKey
		}
		equal(t, "job", got, tt.want)
	}
	equal(t, "build", w.get(b).State, BuildPassed)
}

func TestConcurrency(t *testing.T) {
	t.Run("ordered", func(t *testing.T) {
		w := newRig(t)
		b := w.build("steps: [{command: a, key: a, concurrency: 1, concurrency_group: g, depends_on: z}, {command: b, key: b, concurrency: 1, concurrency_group: g}, {command: z, key: z}]")
		one, two := w.agent(), w.agent()
		z := w.take(one)
		equal(t, "second job while a waits in the group", w.take(two), "")
		w.finish(z, 0)
		a := w.take(one)
		equal(t, "states", states(w.get(b)), "a=running b=limited z=passed")
		w.finish(a, 0)
		w.finish(w.take(two), 0)
		equal(t, "build", w.get(b).State, BuildPassed)
	})
	t.Run("eager", func(t *testing.T) {
		w := newRig(t)
		step := "concurrency: 1, concurrency_group: g, concurrency_method: eager"
		b := w.build(fmt.Sprintf("steps: [{command: a, key: a, %s, depends_on: z}, {command: b, key: b, %s}, {command: z, key: z}]", step, step))
		equal(t, "ran", w.run(nil), "[b z a]")
		equal(t, "build", w.get(b).State, BuildPassed)
	})
	t.Run("over builds", func(t *testing.T) {
		w := newRig(t)
		yaml := "steps: [{command: a, key: a, concurrency: 2, concurrency_group: g}]"
		w.build(yaml)
		w.build(yaml)
		third := w.build(yaml)
		one, two, three := w.agent(), w.agent(), w.agent()
		first := w.take(one)
		if first == "" || w.take(two) == "" {
			t.Fatal("two jobs should run")
		}
		equal(t, "third", w.take(three), "")
		equal(t, "third", w.get(third).Jobs[0].State, JobLimited)
		w.finish(first, 0)
		if w.take(three) == "" {
			t.Error("the third job did not get the free slot")
		}
	})
}

func TestUpload(t *testing.T) {
	w := newRig(t)
	b := w.build("steps: [{command: up, key: up}, wait, {command: last, key: last, depends_on: up}]")
	a := w.agent()
	up := w.take(a)
	upload := func(uuid, doc string) error { return w.Upload(up, uuid, []byte(doc), false) }
	if err := upload("1", `{"env":{"X":"1"},"steps":[{"command":"one","key":"one"}]}`); err != nil {
		t.Fatal(err)
	}
	if err := upload("1", `{"steps":[{"command":"one","key":"again"}]}`); err != nil {
		t.Fatal("the repeated upload was not answered as before: ", err)
	}
	if err := upload("2", `{"steps":[{"command":"two","key":"two"},"wait",{"command":"three","key":"three"}]}`); err != nil {
		t.Fatal(err)
	}
	wantError(t, upload("3", `{"steps":[{"command":"x","key":"two"}]}`), Invalid, `"two" has already been used`)
	wantError(t, upload("4", `{"steps":[{"command":"x","depends_on":"nobody"}]}`), Invalid, `"nobody"`)
	wantError(t, upload("5", `{"steps":[{"command":"x","if":"build.nothing =="}]}`), Invalid, "if:")
	wantError(t, upload("6", `{"steps":[{"comand":"x","plugins":[]}]}`), Invalid, `nearest is "command"`)
	equal(t, "order", states(w.get(b)), "up=running one=scheduled two=scheduled three=waiting last=waiting")
	w.finish(up, 0)
	equal(t, "ran", w.run(nil), "[one two three last]")
	b = w.get(b)
	equal(t, "build", b.State, BuildPassed)
	wantError(t, upload("7", `{"steps":[{"command":"x"}]}`), Invalid, "running jobs only")
}

func TestUploadedStepMayDependOnItsUploader(t *testing.T) {
	w := newRig(t)
	b := w.build("steps: [{command: up, key: up}]")
	up := w.take(w.agent())
	if err := w.Upload(up, "1", []byte(`{"steps":[{"command":"x","key":"x","depends_on":"up"}]}`), false); err != nil {
		t.Fatal(err)
	}
	equal(t, "ran while the uploader runs", w.run(nil), "[]")
	w.finish(up, 0)
	equal(t, "ran", w.run(nil), "[x]")
	equal(t, "build", w.get(b).State, BuildPassed)
}

func TestUploadReplace(t *testing.T) {
	w := newRig(t)
	b := w.build("steps: [{command: up, key: up}, {command: old, key: old}, {command: older, key: older}]")
	a, other := w.agent(), w.agent()
	up, old := w.take(a), w.take(other)
	doc := []byte(`{"steps":[{"command":"new","key":"older"}]}`)
	wantError(t, w.Upload(up, "1", []byte(`{"steps":[{"command":"x","key":"old"}]}`), true), Invalid, `"old"`)
	equal(t, "after a refusal", states(w.get(b)), "up=running old=running older=scheduled")
	if err := w.Upload(up, "2", doc, true); err != nil {
		t.Fatal(err)
	}
	equal(t, "after", states(w.get(b)), "up=running older=scheduled old=running")
	w.finish(up, 0)
	w.finish(old, 0)
	w.run(nil)
	equal(t, "build", w.get(b).State, BuildPassed)
}

func TestRetry(t *testing.T) {
	retry := "{command: a, key: a, retry: {automatic: [{signal_reason: process_run_error, limit: 0}, {exit_status: -1, limit: 1}, {exit_status: [7, 8], limit: 2}]}}"
	end := func(w *rig, a string, f Finish) {
		if id := w.take(a); id == "" {
			w.t.Fatal("no job to take")
		} else if err := w.FinishJob(id, f); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name  string
		ends  []Finish
		jobs  int
		build BuildState
	}{
		{"first matching rule decides", []Finish{{ExitStatus: -1, SignalReason: "process_run_error"}}, 1, BuildFailed},
		{"limit counts per rule", []Finish{{ExitStatus: -1}, {ExitStatus: 7}, {ExitStatus: 8}, {ExitStatus: 0}}, 4, BuildPassed},
		{"limit reached", []Finish{{ExitStatus: -1}, {ExitStatus: -1}}, 2, BuildFailed},
		{"no rule", []Finish{{ExitStatus: 1}}, 1, BuildFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newRig(t)
			b := w.build("steps: [" + retry + ", wait, {command: z, key: z, skip: true}]")
			a := w.agent()
			for _, f := range tt.ends {
				end(w, a, f)
			}
			b = w.get(b)
			n := 0
			for _, j := range b.Jobs {
				if j.StepKey == "a" {
					equal(t, "retries_count", j.RetriesCount, n)
					n++
				}
			}
			equal(t, "attempts", n, tt.jobs)
			equal(t, "build", b.State, tt.build)
		})
	}
}

func TestManualRetryReopensTheBuild(t *testing.T) {
	w := newRig(t)
	b := w.build("steps: [{command: a, key: a}, wait, {group: g, steps: [{command: b, key: b}]}]")
	w.run(map[string]int{"a": 1})
	b = w.get(b)
	equal(t, "build", b.State, BuildFailed)
	next, err := w.RetryJob(b.Jobs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "build", w.get(b).State, BuildRunning)
	_, err = w.RetryJob(b.Jobs[0].ID)
	wantError(t, err, BadRequest, "already been retried")
	equal(t, "ran", w.run(nil), "[a b]")
	b = w.get(b)
	equal(t, "states", states(b), "a=failed a=passed b=passed")
	equal(t, "build", b.State, BuildPassed)
	equal(t, "retried in", b.Jobs[0].RetriedIn, next.ID)
	_, err = w.RetryJob(next.ID)
	wantError(t, err, BadRequest, "passed")
}

func TestCancel(t *testing.T) {
	w := newRig(t)
	b := w.build("steps: [{command: a, key: a, retry: {automatic: true}}, {command: b, key: b}, wait, {command: c, key: c}]")
	a := w.agent()
	id := w.take(a)
	if _, err := w.CancelBuild(b.ID); err != nil {
		t.Fatal(err)
	}
	equal(t, "states", states(w.get(b)), "a=canceling b=canceled c=canceled")
	equal(t, "build", w.get(b).State, BuildCanceling)
	w.finish(id, 1)
	b = w.get(b)
	equal(t, "states", states(b), "a=canceled b=canceled c=canceled")
	equal(t, "build", b.State, BuildCanceled)
	_, err := w.CancelBuild(b.ID)
	wantError(t, err, Invalid, "already canceled")
	_, err = w.RetryJob(id)
	wantError(t, err, Invalid, "canceled build")
}

func TestTimeout(t *testing.T) {
	w := newRig(t)
	b := w.build("steps: [{command: a, key: a, timeout_in_minutes: 2}, {command: b, key: b, timeout_in_minutes: 2}]")
	one, two := w.agent(), w.agent()
	first, second := w.take(one), w.take(two)
	w.pass(119 * time.Second)
	equal(t, "before", states(w.get(b)), "a=running b=running")
	w.pass(time.Second)
	equal(t, "at two minutes", states(w.get(b)), "a=timing_out b=timing_out")
	w.finish(first, -1)
	w.finish(second, 0)
	equal(t, "after", states(w.get(b)), "a=timed_out b=passed")
	equal(t, "build", w.get(b).State, BuildFailed)
}

func TestLostAgent(t *testing.T) {
	w := newRig(t)
	b := w.build("steps: [{command: a, key: a, retry: {automatic: [{exit_status: -1, signal_reason: none, limit: 1}]}}]")
	one, two := w.agent(), w.agent()
	id := w.take(one)
	w.pass(2 * time.Minute)
	if err := w.Heartbeat(two); err != nil {
		t.Fatal(err)
	}
	w.pass(61 * time.Second)
	a, _ := w.Agent(one)
	equal(t, "agent", a.State, AgentLost)
	j, _ := w.Job(id)
	equal(t, "job", fmt.Sprintf("%s %d %q", j.State, *j.ExitStatus, j.SignalReason), `failed -1 ""`)
	again := w.take(two)
	if again == "" {
		t.Fatal("the job was not retried")
	}
	wantError(t, w.FinishJob(id, Finish{}), Invalid, "cannot be finished")
	w.finish(again, 0)
	equal(t, "build", w.get(b).State, BuildPassed)
}

func TestOfferNobodyAccepts(t *testing.T) {
	w := newRig(t)
	w.build("steps: [{command: a, key: a}]")
	deaf, other := w.agent(), w.agent()
	if o, _ := w.Ping(deaf); o.Action != ActionJob {
		t.Fatalf("Ping = %+v", o)
	}
	o, _ := w.Ping(other)
	equal(t, "the other agent while it is offered", o.Action, ActionIdle)
	w.pass(11 * time.Second)
	o, _ = w.Ping(other)
	equal(t, "the other agent later", o.Action, ActionJob)
	_, err := w.Accept(deaf, o.JobID)
	wantError(t, err, Invalid, "not assigned to this agent")
}

func TestPausedQueueAndAgent(t *testing.T) {
	w := newRig(t)
	w.build("steps: [{command: a, key: a}]")
	a := w.agent()
	q := w.Queues()[0]
	if _, err := w.SetQueuePaused(q.ID, true, "cleaning"); err != nil {
		t.Fatal(err)
	}
	_, err := w.SetQueuePaused(q.ID, true, "")
	wantError(t, err, Invalid, "already paused")
	equal(t, "job", w.take(a), "")
	if _, err := w.SetQueuePaused(q.ID, false, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.SetAgentPaused(a, true, "busy"); err != nil {
		t.Fatal(err)
	}
	o, _ := w.Ping(a)
	equal(t, "order", o, Order{Action: ActionPause, Reason: "busy"})
	if err := w.SetAgentPaused(a, false, ""); err != nil {
		t.Fatal(err)
	}
	if w.take(a) == "" {
		t.Error("no job after resume")
	}
}
