package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/node"
)

const unit = "0123456789abcdef0123456789abcdef"

// fakeJournalctl is a program that prints entries if it is asked for those of a unit's
// invocation and a slot.
func fakeJournalctl(t *testing.T, entries string) string {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf(`#!/bin/sh
case "$*" in
--sync) touch %[1]s/synced ;;
"--quiet --output=json --output-fields="*" _SYSTEMD_INVOCATION_ID=%[2]s KBNODE_SLOT=cpu0") test -e %[1]s/synced && cat %[1]s/entries ;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac
`, dir, unit)
	for name, text := range map[string]string{"journalctl": text, "entries": entries} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "journalctl")
}

// collected are the lines of the slot's file after Collect.
func collected(t *testing.T, entries string) ([]string, error) {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, node.AuditDir), 0o700); err != nil {
		t.Fatal(err)
	}
	collectErr := Collect(t.Context(), root, "cpu0", unit, fakeJournalctl(t, entries))
	raw, err := os.ReadFile(filepath.Join(root, node.AuditDir, "cpu0.log"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(raw), func(r rune) bool { return r == '\n' }), collectErr
}

// A job without a container is recorded once, as it was before its command began,
// whatever the command sent to the journal.
func TestJobsWithoutContainersAreRecorded(t *testing.T) {
	const (
		began = `{"__REALTIME_TIMESTAMP":"1000000","KBNODE_JOB":"j1","KBNODE_PIPELINE":"p","KBNODE_BUILD":"7","KBNODE_STEP":"s"}` + "\n"
		ended = `{"__REALTIME_TIMESTAMP":"3000000","KBNODE_JOB":"j1","KBNODE_STATUS":"3"}` + "\n"
		want  = `{"slot":"cpu0","job":"j1","pipeline":"p","build":"7","step":"s","image":"","began":"1970-01-01T00:00:01Z","ended":"1970-01-01T00:00:03Z","status":3}`
	)
	for name, entries := range map[string]string{
		"ended":         began + ended,
		"another's job": began + strings.ReplaceAll(began, "j1", "j2") + ended,
		"odd values":    began + `{"KBNODE_JOB":["j2","j3"],"KBNODE_STATUS":["0","1"],"KBNODE_STEP":null}` + "\n" + ended,
		"many entries":  began + strings.Repeat(`{"KBNODE_STEP":"`+strings.Repeat("x", 4096)+`"}`+"\n", 1000) + ended,
	} {
		if got, err := collected(t, entries); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: recorded %q, %v, want %s", name, got, err, want)
		}
	}
	const unknown = `"status":-1}`
	if got, err := collected(t, began); err != nil || len(got) != 1 || !strings.HasSuffix(got[0], unknown) || strings.Contains(got[0], `"ended":"0001`) {
		t.Errorf("without an end: recorded %q, %v, want a time and %s", got, err, unknown)
	}
	// A job cannot lose its record by sending an entry that is too long.
	long := began + `{"KBNODE_STEP":"` + strings.Repeat("x", 2*maxEntry) + `"}` + "\n" + ended
	if got, err := collected(t, long); err == nil || len(got) != 1 || !strings.Contains(got[0], `"job":"j1"`) || !strings.HasSuffix(got[0], unknown) {
		t.Errorf("after an entry that is too long: recorded %q, %v, want job j1 and an error", got, err)
	}
	if got, err := collected(t, ""); err != nil || len(got) != 0 {
		t.Errorf("an agent without a job: recorded %q, %v, want nothing", got, err)
	}
	if err := Collect(t.Context(), t.TempDir(), "cpu0", unit, "/nonexistent/journalctl"); err == nil || !strings.Contains(err.Error(), "journalctl") {
		t.Errorf("without journalctl: %v, want an error", err)
	}
}

// A value is one line of bounded length, whatever a pipeline's author chose.
func TestReportedValuesAreLines(t *testing.T) {
	message, fields := reported(Record{Slot: "cpu0", Job: "j1", Step: "a\nKBNODE_JOB=j2\x1b[2J" + strings.Repeat("x", 1000), Status: 4})
	if got := fields["KBNODE_STEP"]; strings.ContainsAny(got, "\n\x1b") || len(got) > 2*maxValue {
		t.Errorf("the step is %q, want a line of at most %d characters", got, maxValue)
	}
	if status, ok := fields["KBNODE_STATUS"]; ok || message != "kbnode: the job begins: j1" {
		t.Errorf("message %q, status %q, want none before the end", message, status)
	}
	if _, fields = reported(Record{Ended: time.Now(), Status: 4}); fields["KBNODE_STATUS"] != "4" {
		t.Errorf("status %q, want 4", fields["KBNODE_STATUS"])
	}
}
