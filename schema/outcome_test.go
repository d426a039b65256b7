package schema

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOutcomes(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range Outcomes() {
		want := 0
		if o.Retry {
			want = 75
		} else if o.Fault == FaultLauncher {
			want = 78
		}
		if got := o.ExitStatus(); got != want || o.Text == "" || NewOutcome(o.Name, "") != o {
			t.Errorf("%+v: exit status %d, want %d", o, got, want)
		}
		if seen[o.Name] || !slices.Contains(Faults(), o.Fault) {
			t.Errorf("%+v: named twice, or of no known fault", o)
		}
		seen[o.Name] = true
		if o.Retry == slices.Contains([]string{FaultNone, FaultSubmission, FaultTask, FaultLauncher}, o.Fault) {
			t.Errorf("%+v: retry must follow from the fault: a submission is not judged again because it failed", o)
		}
	}
	if o := NewOutcome("winning", ""); o.Name != OutcomeRunner || !strings.Contains(o.Text, `"winning"`) {
		t.Errorf("NewOutcome of an unknown name = %+v", o)
	}
}

// Every outcome but a pass says what its reader can do.
func TestNext(t *testing.T) {
	for _, o := range Outcomes() {
		next := o.Next()
		if (next == "") != (o.Name == OutcomePassed) || strings.Contains(next, "\n") {
			t.Errorf("%s: Next() = %q", o.Name, next)
		}
		if o.Fault == FaultSubmission && strings.Contains(next, "not judged") {
			t.Errorf("%s: Next() = %q", o.Name, next)
		}
	}
	if (Outcome{Name: "of tomorrow", Fault: FaultMachine}).Next() == "" {
		t.Error("an outcome of a later version says nothing")
	}
}

// docs/outcomes.md is written from the table, with -update.
func TestOutcomesAreDocumented(t *testing.T) {
	file := filepath.Join("..", "docs", "outcomes.md")
	want := outcomesPage()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want {
		t.Errorf("%s (%v) is not what the table says; go test ./schema -run Documented -update", file, err)
	}
}

func outcomesPage() string {
	var b strings.Builder
	b.WriteString(`# Outcomes

Every evaluation ends with exactly one of these outcomes. ` + "`kbrun`" + ` writes it into ` + "`result.json`" + `, as the top-level object
` + "`outcome`" + `:

- ` + "`name`" + `, ` + "`fault`" + ` and ` + "`retry`" + ` as below
- ` + "`text`" + `: one line, safe to show
- ` + "`phase`" + `: ` + "`test`" + `, ` + "`benchmark`" + `, ` + "`leaderboard`" + ` or ` + "`profile.0`" + ` and on; empty when no phase was under way

There are no others. This page is made from the table in ` + "`schema/outcome.go`" + `.

| fault | who has to act |
|---|---|
| none | nobody |
| submission | the submitter |
| task | whoever wrote the task's harness |
| launcher | whoever made the payload or configured the job |
| machine | the owner of the machine; the job is run again elsewhere |
| runner | the makers of kbrun; the job is run again elsewhere |
| operator | whoever ended the job; it can be started again |

` + "`kbrun`" + ` exits with status 0 for every verdict, right or wrong. Status 75 means that there is no verdict; the step's retry rules
run the job again on another machine. So they do after status 2, with which a Go program dies by itself. Status 78 means that
the payload or the configuration can work nowhere, 64 that the command line cannot; the job is not run again. The text is what a submitter reads when there is nothing more exact to say.

| outcome | fault | retry | exit | text |
|---|---|---|---|---|
`)
	for _, o := range Outcomes() {
		retry := "no"
		if o.Retry {
			retry = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %d | %s |\n", o.Name, o.Fault, retry, o.ExitStatus(), o.Text)
	}
	b.WriteString(`
A server shows the outcome of the last attempt. If that is a fault of a machine or of the runner, no further attempt follows by itself: the
page of the submission says that it was not to blame and offers to run it again. A run that left no result has an outcome, too: ` + "`machine`" + `
if no machine took or finished it, or if its build ended without a result; ` + "`canceled`" + ` if somebody ended it; ` + "`rejected`" + ` if the
organizers' check rejected the submission before it ran; ` + "`unsupported`" + ` if no machines
serve its GPU type.

## A sealed payload that is not opened

Nothing of the submission has run then; the text has the broker's reason ([secrets.md](secrets.md)).

| reason | outcome | who can do something |
|---|---|---|
| no broker, ` + "`" + `busy` + "`" + `; the agent gets no token | ` + "`" + `machine` + "`" + `, tried elsewhere | the machine's owner |
| ` + "`" + `unknown-recipient` + "`" + `, ` + "`" + `unproved` + "`" + ` | ` + "`" + `machine` + "`" + `, tried elsewhere | the machine's owner: its key is not among the recipients, it does not believe the job |
| ` + "`" + `wrong-…` + "`" + `, ` + "`" + `expired` + "`" + `, ` + "`" + `renamed` + "`" + `, ` + "`" + `altered` + "`" + `, ` + "`" + `malformed` + "`" + `, ` + "`" + `too-large` + "`" + `, ` + "`" + `unsigned` + "`" + ` | ` + "`" + `bad-payload` + "`" + ` | the launcher: no machine opens it |

## How an outcome of a task's own harness is found

The runner sees a report, an exit status, a time and what the program printed. Each kind of failure of a submission in Python has
an outcome of its own:

| what happened | outcome |
|---|---|
| its source does not parse | ` + "`syntax-error`" + ` |
| it imports a module that is not there | ` + "`missing-module`" + ` |
| it raised in one of its own lines | ` + "`exception`" + `, or ` + "`out-of-memory`" + ` |
| what it returned makes the checker raise | ` + "`crashed`" + ` |
| it left by ` + "`os._exit`" + ` or ` + "`sys.exit`" + `, whatever the status | ` + "`exited`" + ` |
| it was killed, by ` + "`SIGSEGV`" + ` or another signal | ` + "`killed`" + `, or ` + "`out-of-memory`" + ` when the kernel did it |
| it hangs | ` + "`timeout`" + ` |
| its report cannot be true | ` + "`forged`" + `, ` + "`inconsistent`" + ` |

What the kernel ends elsewhere on the machine for want of memory, as in another slot, is not the submission's: its sandbox counts its own. Where kbrun can make
no control group it asks the one that it is in, then the machine; there a submission that kills itself at such a moment reads ` + "`out-of-memory`" + `.

A submission can print any text, a traceback of another file among it. What is read from its output chooses only between outcomes
that are the submission's fault.

## Who is to blame

The submission is to blame for what happens after its own code began, and for what the same task does with its own solution and
does not do with the submission. So a harness in Python that came to no verdict is run once more, a *control run*: in the same
sandbox, in new directories, on the phase's first case, with ` + "`ref_kernel`" + ` of ` + "`reference.py`" + ` in place of the submission, or with one that
does nothing where there is none. It has two minutes, and never passes the job's deadline.

- No control run is made when every phase came to a verdict, when the report tells how a case ended, or when the exception was
  raised in the submission's own lines. Words that sound like a broken driver, and a missing module, always lead to one.
- The control comes to a verdict, right or wrong: the outcome stays. When it took longer than the limit that the submission passed,
  and longer than ten seconds, the outcome is ` + "`ambiguous`" + `.
- It fails with an error of the driver or the device, or for want of memory: ` + "`machine`" + `.
- It fails otherwise: ` + "`harness-fault`" + `, with file, line and error of the task's own. A stand-in that does nothing proves nothing once it was
  called, nor does a control that is still at work when its time is over and the task allows more.

Nothing of the submission is in a control run. What it prints, removes, kills or leaves in its directories does not reach it, and
the secret seed is replaced by 1. What outlives both is the machine: a submission that breaks a GPU for good is told that the machine is at
fault. Harnesses in C++ that a task brings have no control run, because they are linked with the submission: there, every exit status is its own.

The isolated harness makes no control run. Its judge runs in another process than the submission, so kbrun sees whose files fail (` + "`TestBlame`" + `):

| what happened | outcome |
|---|---|
| the task's files do not load, or ` + "`generate_input`" + ` raises; the task's files exit, crash or do not answer for ten minutes | ` + "`harness-fault`" + ` |
| the check returns no text, list or tuple | ` + "`harness-fault`" + ` |
| the check refuses the answer of the task's own ` + "`ref_kernel`" + `; it is asked when it first refuses the submission's, and whenever it raises | ` + "`harness-fault`" + ` |
| a phase passes its time limit, and making inputs and checking took more than half of the limit | ` + "`harness-fault`" + ` |
| the task's files import torch, triton or numpy, and the image has no such module | ` + "`machine`" + ` |
| the driver fails where only the task's files use it | ` + "`machine`" + ` |
| a phase passes its time limit, and others kept the submission from a core for more than a third of the time | ` + "`ambiguous`" + ` |
| a phase passes its time limit in any other case, also if the submission's own threads keep it from a core | ` + "`timeout`" + ` |
`)
	return b.String()
}
