package audit

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-mode/kbgen/node"
)

// A full file becomes the one before, and the next record begins a new one.
func TestFilesAreBounded(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, node.AuditDir), 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(root, node.AuditDir, "gpu0.log")
	if err := os.WriteFile(name, bytes.Repeat([]byte("x"), maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, job := range []string{"a", "b"} {
		if err := Append(root, Record{Slot: "gpu0", Job: job, Status: -1}); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var jobs []string
	for line := range bytes.Lines(raw) {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		jobs = append(jobs, r.Job)
	}
	if len(jobs) != 2 || jobs[0] != "a" || jobs[1] != "b" {
		t.Errorf("records of the jobs %q, want a and b", jobs)
	}
	if old, err := os.Stat(name + ".1"); err != nil || old.Size() != maxFile+1 {
		t.Errorf("the file before: %v, %v", old, err)
	}
}
