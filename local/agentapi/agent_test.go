package agentapi

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local/engine"
)

// everything is one build that uses each buildkite-agent command.
var everything = map[string]string{
	"upload.sh": `buildkite-agent pipeline upload DIR/second.yml`,
	"second.yml": `
env: {FROM_UPLOAD: "yes"}
steps:
  - {key: artifacts, command: bash DIR/artifacts.sh, artifact_paths: "kept.json"}
  - {key: data, label: "the data", command: bash DIR/data.sh}
  - {key: log, command: bash DIR/log.sh}
  - wait
  - {key: check, command: bash DIR/check.sh}
`,
	"artifacts.sh": `
rm -rf out; mkdir -p out/deep
printf small > out/small.txt
head -c 300000 /dev/urandom > out/deep/large.bin
: > out/empty
printf x > 'out/od d#%ü.txt'
buildkite-agent artifact upload 'out/**/*'
cp out/deep/large.bin DIR/large.bin
printf '{}' > kept.json
`,
	"data.sh": `
test "$FROM_UPLOAD" = yes
buildkite-agent meta-data set colour green
test "$(buildkite-agent meta-data get colour)" = green
buildkite-agent meta-data exists colour
if buildkite-agent meta-data exists nothing; then exit 1; else test $? = 100; fi
test "$(buildkite-agent meta-data get nothing --default fallback)" = fallback
buildkite-agent meta-data keys | grep -qx colour
test "$(buildkite-agent meta-data get colour --build "$BUILDKITE_BUILD_ID")" = green
buildkite-agent annotate '**one**' --context ctx.1 --style info
buildkite-agent annotate ' two' --context ctx.1 --append --style success
buildkite-agent annotate gone --context gone
buildkite-agent annotation remove --context gone
test "$(buildkite-agent step get label)" = 'the data'
test "$(buildkite-agent step get state --step data --format json)" = '"running"'
buildkite-agent step get --format json | grep -q '"key":"data"'
buildkite-agent step update label ' (done)' --append
test "$(buildkite-agent step get label)" = 'the data (done)'
buildkite-agent job update timeout_in_minutes 30000
if buildkite-agent secret get NONE; then exit 1; fi
if printf 'steps: [{command: x, comand: y}]' | buildkite-agent pipeline upload; then exit 1; fi
`,
	"log.sh": `
set +x
for i in $(seq 1 20000); do echo "line $i ----------------------------------------------------------------------------------------"; done
`,
	"check.sh": `
rm -rf dl; mkdir dl
buildkite-agent artifact download 'out/**/*' dl --step artifacts
cmp dl/out/deep/large.bin DIR/large.bin
test "$(cat dl/out/small.txt)" = small
test "$(cat 'dl/out/od d#%ü.txt')" = x
test -f dl/out/empty
buildkite-agent artifact download kept.json dl
test "$(buildkite-agent artifact search 'out/*.txt' --format '%p\n' | wc -l)" = 2
test "$(buildkite-agent artifact shasum out/deep/large.bin)" = "$(sha1sum < DIR/large.bin | cut -d' ' -f1)"
test "$(buildkite-agent artifact shasum --sha256 out/deep/large.bin)" = "$(sha256sum < DIR/large.bin | cut -d' ' -f1)"
test "$(buildkite-agent step get outcome --step artifacts)" = passed
`,
}

func TestRealAgent(t *testing.T) {
	t.Parallel()
	binary := testenv.Agent(t, os.Getenv("PATH"))
	w := newRigWith(t, engine.Options{Minute: time.Second}, &clock{real: true}, Options{})
	w.startAgent(binary, "--spawn", "2")
	w.streaming("default", 2)

	t.Run("everything", func(t *testing.T) {
		w := w.in(t)
		dir := scripts(t, everything)
		b := w.ended(w.build(`steps: [{key: upload, command: "bash `+dir+`/upload.sh"}]`), engine.BuildPassed)
		if len(b.Annotations) != 1 || b.Annotations[0].Body != "**one** two" || b.Annotations[0].Style != "success" {
			t.Errorf("annotations %+v", b.Annotations)
		}
		if b.MetaData["colour"] != "green" {
			t.Errorf("meta-data %v", b.MetaData)
		}
		at := slices.IndexFunc(b.Jobs, func(j engine.Job) bool { return j.StepKey == "log" })
		log := w.log(b.Jobs[at].ID)
		if len(log) < 2_000_000 || int64(len(log)) != b.Jobs[at].LogSize || b.Jobs[at].ChunksLost != 0 ||
			!strings.Contains(log, "line 1 --") || !strings.Contains(log, "line 20000 --") {
			t.Errorf("log has %d bytes, %d without a gap, %d chunks lost", len(log), b.Jobs[at].LogSize, b.Jobs[at].ChunksLost)
		}
		t.Logf("log of %d bytes", len(log))
		all, err := w.engine.BuildArtifacts(b.ID, true)
		if err != nil || len(all) != 5 {
			t.Errorf("%d artifacts, %v; want 5", len(all), err)
		}
		if w.blob.Leaks() != 0 {
			t.Errorf("%d tokens came to the store", w.blob.Leaks())
		}
	})

	t.Run("cancel", func(t *testing.T) {
		w := w.in(t)
		b := w.build(`steps: [{key: long, command: sleep 600}]`)
		w.isRunning(b, "long")
		if _, err := w.engine.CancelBuild(b.ID); err != nil {
			t.Fatal(err)
		}
		b = w.ended(b, engine.BuildCanceled)
		if j := b.Jobs[0]; *j.ExitStatus != -1 || j.Signal != "SIGTERM" || j.SignalReason != "cancel" {
			t.Errorf("exit status %d, signal %q, reason %q", *j.ExitStatus, j.Signal, j.SignalReason)
		}
	})

	t.Run("timeout", func(t *testing.T) {
		w := w.in(t)
		b := w.ended(w.build(`steps: [{key: long, command: sleep 600, timeout_in_minutes: 1}]`), engine.BuildFailed)
		if j := b.Jobs[0]; j.State != engine.JobTimedOut || j.SignalReason != "cancel" {
			t.Errorf("job is %s with reason %q, want timed_out by cancel", j.State, j.SignalReason)
		}
	})

	t.Run("retry", func(t *testing.T) {
		w := w.in(t)
		dir := scripts(t, map[string]string{"flaky.sh": `test "$BUILDKITE_RETRY_COUNT" = 2 || exit 75`})
		b := w.ended(w.build(`steps: [{command: "bash `+dir+`/flaky.sh", retry: {automatic: [{exit_status: 75, limit: 2}]}}]`), engine.BuildPassed)
		if len(b.Jobs) != 3 || *b.Jobs[0].ExitStatus != 75 || b.Jobs[2].RetriesCount != 2 {
			t.Errorf("%d attempts", len(b.Jobs))
		}
	})

	t.Run("commands that end a build", func(t *testing.T) {
		w := w.in(t)
		b := w.ended(w.build(`steps: [{key: a, command: "buildkite-agent step cancel --step b && buildkite-agent build cancel; sleep 600"}, {key: b, command: "true", depends_on: a}]`), engine.BuildCanceled)
		if b.Jobs[1].State != engine.JobCanceled {
			t.Errorf("step b is %s, want canceled", b.Jobs[1].State)
		}
	})

	t.Run("polling", func(t *testing.T) {
		t.Parallel()
		w := w.in(t)
		w.startAgent(binary, "--queue", "polled", "--ping-mode", "poll-only")
		w.ended(w.build(`steps: [{command: "true", agents: {queue: polled}}]`), engine.BuildPassed)
	})

	t.Run("acquire", func(t *testing.T) {
		t.Parallel()
		w := w.in(t)
		b := w.build(`steps: [{command: "exit 7", agents: {queue: nobody}}]`)
		p := w.startAgent(binary, "--acquire-job", b.Jobs[0].ID, "--reflect-exit-status")
		w.ended(b, engine.BuildFailed)
		<-p.exited
		if code := p.cmd.ProcessState.ExitCode(); code != 7 {
			t.Errorf("the agent exits %d, want 7 as the job", code)
		}
	})
}

// A job whose agent was killed is lost once the agent has been silent for long
// enough, and is run again by another one.
func TestKilledAgent(t *testing.T) {
	t.Parallel()
	binary := testenv.Agent(t, os.Getenv("PATH"))
	const lostAfter = 24 * time.Hour // by the engine's clock
	w := newRigWith(t, engine.Options{LostAfter: lostAfter}, &clock{real: true}, Options{})
	dir := scripts(t, map[string]string{"once.sh": `
if test "$BUILDKITE_RETRY_COUNT" = 0; then
	while test -e DIR/once.sh; do sleep 1; done # until the test is over
fi
`})
	doomed := w.startAgent(binary)
	w.streaming("default", 1)
	b := w.build(`steps: [{key: x, command: "bash ` + dir + `/once.sh", retry: {automatic: [{exit_status: -1, limit: 1}]}}]`)
	w.isRunning(b, "x")
	w.startAgent(binary)
	w.streaming("default", 2)
	if err := doomed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.streaming("default", 1)
	w.clock.pass(lostAfter)
	b = w.ended(b, engine.BuildPassed)
	if len(b.Jobs) != 2 || *b.Jobs[0].ExitStatus != -1 || b.Jobs[0].SignalReason != "" || b.Jobs[0].AgentID == b.Jobs[1].AgentID {
		t.Errorf("%d attempts, first %+v", len(b.Jobs), b.Jobs[0])
	}
}

// An agent on a stream takes a job in far less time than one that polls.
func TestSlowPickUp(t *testing.T) {
	testenv.NeedSlow(t)
	binary := testenv.Agent(t, os.Getenv("PATH"))
	w := newRigWith(t, engine.Options{}, &clock{real: true}, Options{})
	w.startAgent(binary, "--spawn", "2")
	w.streaming("default", 2)
	var accept, runnable, finish []time.Duration
	for range 15 {
		j := w.ended(w.build(`steps: [{command: "true"}]`), engine.BuildPassed).Jobs[0]
		accept = append(accept, j.AcceptedAt.Sub(j.AssignedAt))
		runnable = append(runnable, j.AcceptedAt.Sub(j.RunnableAt))
		finish = append(finish, j.FinishedAt.Sub(j.RunnableAt))
	}
	t.Logf("medians of 15 jobs: assigned to accepted %v, runnable to accepted %v, runnable to finished %v",
		median(accept), median(runnable), median(finish))
	b := w.ended(w.build(`steps: [{command: "true", parallelism: 30}]`), engine.BuildPassed)
	t.Logf("30 jobs on 2 workers: %v", b.FinishedAt.Sub(b.CreatedAt).Round(time.Millisecond))
	if m := median(runnable); m > 500*time.Millisecond {
		t.Errorf("pick-up takes %v, want far less than polling's", m)
	}
}

// Streams end all the time here: what is assigned between two of them comes with
// the next.
func TestRealAgentOverShortStreams(t *testing.T) {
	t.Parallel()
	binary := testenv.Agent(t, os.Getenv("PATH"))
	w := newRigWith(t, engine.Options{}, &clock{real: true}, Options{StreamLimit: 200 * time.Millisecond})
	p := w.startAgent(binary, "--ping-mode", "stream-only")
	for range 3 {
		w.ended(w.build(`steps: [{command: "true"}, {command: "true"}]`), engine.BuildPassed)
	}
	select {
	case <-p.exited:
		t.Errorf("the agent left: %s", p.output.String())
	default:
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2].Round(10 * time.Microsecond)
}
