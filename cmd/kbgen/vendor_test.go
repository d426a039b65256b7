package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

// The sample for every row of the table is right, whatever the row asks for.
func TestSampleOfEveryRow(t *testing.T) {
	for _, row := range pipelines.Fleet.Requirements() {
		checkQueueFile(t, row.Name, queuefile.Sample(row, "example", "node-1", max(1, row.GPUs)))
	}
}

// The file in docs/vendors.md is right.
func TestDocumentedQueueFile(t *testing.T) {
	page, err := os.ReadFile("../../docs/vendors.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/vendors.md has no yaml block")
	}
	checkQueueFile(t, "docs/vendors.md", string(block[1]))
}

func checkQueueFile(t *testing.T, name, text string) {
	t.Helper()
	f, faults := queuefile.Decode(name, []byte(text))
	faults = append(faults, queuefile.Check([]*queuefile.File{f}, pipelines.Fleet.Requirements())...)
	for _, fault := range faults {
		if fault.Severity == schema.SeverityError {
			t.Errorf("%v in\n%s", fault, text)
		}
	}
}
