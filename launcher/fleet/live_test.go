package fleet

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

func TestList(t *testing.T) {
	job := &struct{ ID string }{"j"}
	live := &Live{
		Queues: []launcher.Queue{{ID: "q1", Key: "h100", Cluster: "Default"}, {ID: "q2", Key: "h100", Cluster: "Lab", Paused: true, PausedNote: "firmware"}, {ID: "q3", Key: "cpu", Cluster: "Lab", Paused: true}},
		Agents: []launcher.Agent{
			{QueueID: "q1", State: launcher.Connected},
			{QueueID: "q1", State: launcher.Connected, Job: job},
			{QueueID: "q1", State: launcher.Connected, Paused: true},
			{QueueID: "q1", State: "stopping"},
			{QueueID: "q2", State: launcher.Connected},
		},
	}
	list := live.List()
	want := []Queue{
		{Key: "h100", Cluster: "Default", Agents: 4, Idle: 1, Busy: 1},
		{Key: "h100", Cluster: "Lab", Agents: 1, Idle: 1, Paused: true, Note: "firmware"},
		{Key: "cpu", Cluster: "Lab", Paused: true},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	var b strings.Builder
	if err := WriteTable(&b, list); err != nil {
		t.Fatal(err)
	}
	table := `QUEUE  CLUSTER  AGENTS  IDLE  BUSY  STATE
h100   Default  4       1     1     dispatching
h100   Lab      1       1     0     paused: firmware
cpu    Lab      0       0     0     paused
`
	if diff := cmp.Diff(table, b.String()); diff != "" {
		t.Errorf("WriteTable (-want +got):\n%s", diff)
	}
}

// Whoever starts an agent chooses its name, its tags and the note of a pause.
// None of them reaches a terminal as it is: no escape sequence, and no C1
// control, which some terminals obey like one.
func TestForeignTextIsCleaned(t *testing.T) {
	const bad = "x\u009b2J\u0085y\x1b[31m\u202ez"
	f, faults := queuefile.Decode("f.yml", []byte(twoGPUs))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	tags := []string{"queue=h100", "gpu=H100_BK", "vendor=nebius", "node=a1"}
	live := &Live{
		Queues: []launcher.Queue{{ID: "q1", Key: "h100", Cluster: bad, Paused: true, PausedNote: bad}, {ID: "q2", Key: bad}},
		Agents: []launcher.Agent{
			{Name: bad, QueueID: "q1", State: bad, Tags: append(tags, "gpu-index=0")},
			{Name: bad, QueueID: "q1", State: launcher.Connected, Paused: true, PausedNote: bad, Tags: append(tags, "gpu-index=1")},
			{Name: bad, QueueID: "q1", Queue: bad, State: launcher.Connected, Tags: append(tags, "gpu-index=1")},
			{Name: bad, QueueID: "q2", Queue: bad, State: launcher.Connected, Tags: append(tags, "gpu-index=7")},
		},
	}
	other := &Live{Queues: live.Queues[1:]}
	tagged := &Live{Queues: live.Queues, Agents: []launcher.Agent{{Name: bad, QueueID: "q1", State: launcher.Connected, Tags: []string{"gpu=" + bad, "vendor=" + bad}}}}
	var b strings.Builder
	for _, l := range []*Live{live, other, tagged} {
		c := l.Compare([]*queuefile.File{f})
		if err := c.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		for _, fault := range c.Faults {
			b.WriteString(fault.Got + fault.Want + "\n") // as JSON has them
		}
		if err := WriteTable(&b, l.List()); err != nil {
			t.Fatal(err)
		}
		if err := json.NewEncoder(&b).Encode(l.List()); err != nil {
			t.Fatal(err)
		}
	}
	text := b.String()
	for _, want := range []string{"agent x y z x y z, want", "paused: x y z", "agent x y z too with", "there are x y z", "gpu=x y z"} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %q", want)
		}
	}
	if t.Failed() {
		t.Logf("in:\n%q", text)
	}
	for i, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Fatalf("got %U in %q", r, text[max(0, i-40):min(len(text), i+40)])
		}
	}
}
