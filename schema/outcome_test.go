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
run the job again on another machine. Status 78 means that the payload or the configuration can work nowhere; the job is not
run again. The text is what a submitter reads when there is nothing more exact to say.

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
	return b.String()
}
