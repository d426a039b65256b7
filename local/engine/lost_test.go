package engine

import (
	"context"
	"testing"
	"time"
)

// What an agent repeats because an answer was lost changes nothing.
func TestRepeatedCalls(t *testing.T) {
	w := newRig(t)
	b := w.build("steps: [{command: a, key: a}]")
	agent, other := w.agent(), w.agent()
	order, err := w.Ping(agent)
	if err != nil || order.Action != ActionJob {
		t.Fatal(order, err)
	}
	first, err := w.Accept(agent, order.JobID)
	if err != nil {
		t.Fatal(err)
	}
	w.pass(time.Second)
	for _, what := range []string{"accepted", "running"} {
		again, err := w.Accept(agent, order.JobID)
		if err != nil || again.Token != first.Token || len(again.Env) != len(first.Env) || !again.Job.AcceptedAt.Equal(first.Job.AcceptedAt) {
			t.Errorf("accept of the %s job again: %v, want the answer of the first time", what, err)
		}
		_, err = w.Accept(other, order.JobID)
		wantError(t, err, Invalid, "not assigned to this agent")
		if err := w.Start(order.JobID); err != nil {
			t.Errorf("start, the job %s: %v", what, err)
		}
		w.pass(time.Second)
	}
	if j, _ := w.Job(order.JobID); j.State != JobRunning || w.clock().Sub(j.StartedAt) != 2*time.Second {
		t.Errorf("the job is %s since %v, want running since two seconds", j.State, j.StartedAt)
	}
	w.finish(order.JobID, 0)
	_, err = w.Accept(agent, order.JobID)
	wantError(t, err, Invalid, "Job is passed")
	wantError(t, w.Start(order.JobID), Invalid, "Job is passed")
	equal(t, "build", w.get(b).State, BuildPassed)
}

// An agent that was never told of what it got is alive, and silent about the job.
func TestJobsThatAgentsForgot(t *testing.T) {
	w := newRig(t)
	b := w.build("steps: [{command: a, key: a, retry: {automatic: [{exit_status: -1, limit: 1}]}}]")
	forgetful := w.agent()
	alive := func(d time.Duration) {
		for range d / time.Minute {
			w.pass(time.Minute)
			_ = w.Heartbeat(forgetful)
		}
	}
	order, _ := w.Ping(forgetful)
	accepted, err := w.Accept(forgetful, order.JobID)
	if err != nil {
		t.Fatal(err)
	}
	alive(unstartedFor)
	equal(t, "within the time that an agent tries", w.get(b).Jobs[0].State, JobAccepted)
	alive(time.Minute)
	equal(t, "afterwards", w.get(b).Jobs[0].State, JobScheduled)
	if _, ok := w.JobByToken(accepted.Token); ok {
		t.Error("the token of a job that was taken back still works")
	}
	if id := w.take(forgetful); id != order.JobID {
		t.Fatalf("took %q, want the same job", id)
	}
	alive(forgottenFor + time.Minute)
	jobs := w.get(b).Jobs
	if len(jobs) != 2 || jobs[0].State != JobFailed || *jobs[0].ExitStatus != -1 || jobs[1].State != JobScheduled {
		t.Errorf("a started job that its agent forgot: %+v, want a retry of one that failed with -1", jobs)
	}
}

// Offers that are not accepted grow rare: every one is a message that waits in
// the agent.
func TestOffersGrowRare(t *testing.T) {
	w := newRig(t)
	w.build("steps: [{command: a, key: a}]")
	agent := w.agent()
	stream, err := w.OpenStream(agent)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	now, cancel := context.WithCancel(t.Context())
	cancel() // Next returns what is ready
	offers := 0
	for range 100 { // ten seconds
		for order, err := stream.Next(now); err == nil; order, err = stream.Next(now) {
			if order.Action == ActionJob {
				offers++
			}
		}
		w.pass(tick)
	}
	if offers < 2 || offers > 4 {
		t.Errorf("a job that is not accepted was offered %d times in ten seconds, want 2 to 4", offers)
	}
}
