package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

// vendorCheck runs kbgen vendor check --live, which runs kblaunch.
func (r *rig) vendorCheck(args ...string) output {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return command(r.t, ctx, []string{
		"KBLAUNCH_API_URL=" + r.URL() + "/", "BUILDKITE_API_TOKEN=" + r.APIToken(), "BUILDKITE_ORG=gpu-mode",
	}, "", filepath.Join(bin, "kbgen"), append([]string{"vendor", "check", "--live"}, args...)...)
}

// A queue file that kbgen wrote is compared with real agents: none of them,
// the right ones, one paused, the queue paused.
func TestVendorCheckLive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	written := command(t, ctx, nil, "", filepath.Join(bin, "kbgen"), "vendor", "init", "--gpu", "CPU_BK", "--vendor", "acme", "--node", "rack-1", "--count", "2")
	written.want(t, 0)
	file := filepath.Join(t.TempDir(), "node.yml")
	if err := os.WriteFile(file, []byte(written.stdout), 0o644); err != nil {
		t.Fatal(err)
	}

	// One agent is on the queue, and has no tag but the queue's.
	s := r.vendorCheck(file)
	s.want(t, 3,
		": ok: 1 node; 2 agents on cpu\n",
		"got agent cpu-1 with no gpu, no vendor, no node, no gpu-index, want gpu=CPU_BK, vendor=acme, node=rack-1, gpu-index=0\n",
		"got no agent on queue cpu for GPU 1, want one connected with the tags queue=cpu,gpu=CPU_BK,vendor=acme,node=rack-1,gpu-index=1\n",
		"queue cpu: 0 of 2 agents connected\n")
	s = r.launch("queues")
	s.want(t, 0)
	if got := strings.Join(strings.Fields(s.stdout), " "); !strings.Contains(got, "bootstrap Default cluster 1 1 0 dispatching") {
		t.Errorf("kblaunch queues = %q, want one idle agent on bootstrap", s.stdout)
	}

	for i := range 2 {
		if err := r.StartAgents("cpu", 1, "gpu=CPU_BK", "vendor=acme", "node=rack-1", fmt.Sprintf("gpu-index=%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.AwaitAgents(ctx, 4); err != nil {
		t.Fatal(err)
	}
	r.vendorCheck(file).want(t, 0, "queue cpu: 2 of 2 agents connected\n")

	for _, a := range r.Engine.Agents() {
		if strings.Contains(strings.Join(a.Tags, ","), "gpu-index=1") {
			if err := r.Engine.SetAgentPaused(a.ID, true, "new driver"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, q := range r.Engine.Queues() {
		if q.Key == "cpu" {
			if _, err := r.Engine.SetQueuePaused(q.ID, true, "moving"); err != nil {
				t.Fatal(err)
			}
		}
	}
	s = r.vendorCheck("--json", file)
	s.want(t, 3)
	var faults []schema.Finding
	if err := json.Unmarshal([]byte(s.stdout), &faults); err != nil {
		t.Fatalf("%v in:\n%s", err, s.stdout)
	}
	var got []string
	for _, f := range faults {
		if f.Severity == schema.SeverityError {
			got = append(got, f.Got)
		}
	}
	if len(got) != 2 || got[0] != "queue cpu paused: moving" || !strings.HasSuffix(got[1], " paused: new driver") {
		t.Errorf("errors %q, want the paused queue and the paused agent", got)
	}
}
