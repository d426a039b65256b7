package gate

import (
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/pipelines"
)

// What kbgen has a container run is what payloads are opened for.
func TestCommandsThatArePayloadsOpenedFor(t *testing.T) {
	p, err := pipelines.Find("evaluate")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range pipelines.Fleet.On() {
		if g.Platform != pipelines.Docker {
			continue
		}
		steps, err := p.Steps(pipelines.Request{GPUs: pipelines.Table{g}, Secret: &pipelines.Run{ID: "second"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			command := strings.Join(s.Command, "\n")
			if carrierNames[command] == nil {
				t.Errorf("%s runs %q", s.Key, command)
			}
			seen[command] = true
		}
	}
	if len(seen) != len(carrierNames) {
		t.Errorf("got %d commands, want %d", len(seen), len(carrierNames))
	}
}
