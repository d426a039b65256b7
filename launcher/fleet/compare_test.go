package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

const twoGPUs = `version: 1
vendor: nebius
contacts: [{name: Ops, email: ops@nebius.dev}]
nodes:
  - name: a1
    isolation: node
    machine: {cpus: 64, memory_gib: 256, disk_gb: 500, network_mbps: 10000}
    gpus:
      - {type: H100_BK, count: 2, queue: h100, agent: {cpus: 16, memory_gib: 64, disk_gb: 100}}
`

func TestCompare(t *testing.T) {
	agent := func(name string, tags ...string) launcher.Agent {
		return launcher.Agent{Name: name, State: "connected", Queue: "h100", QueueID: "q1", Tags: append([]string{"queue=h100"}, tags...)}
	}
	right := func(i int) launcher.Agent {
		return agent(fmt.Sprint("a1-", i), "gpu=H100_BK", "vendor=nebius", "node=a1", fmt.Sprint("gpu-index=", i))
	}
	with := func(a launcher.Agent, change func(*launcher.Agent)) launcher.Agent {
		change(&a)
		return a
	}
	queues := []launcher.Queue{{ID: "q0", Key: "cpu"}, {ID: "q1", Key: "h100"}}
	for _, tt := range []struct {
		name   string
		queues []launcher.Queue
		agents []launcher.Agent
		want   string
	}{
		{"all there", queues, []launcher.Agent{right(1), right(0)}, `
			queue h100: 2 of 2`},
		{"another cluster's queue of that name", []launcher.Queue{{ID: "q9", Key: "h100", Paused: true}, {ID: "q1", Key: "h100"}}, []launcher.Agent{right(0), right(1)}, `
			queue h100: 2 of 2`},
		{"no queue", queues[:1], nil, `
			f.yml:9:9: error: nodes[0].gpus[0]: got no queue "h100" in Buildkite, want it made before agents can join it: Agents, the cluster, Queues, New Queue, self hosted; there are cpu
			queue h100: 0 of 2`},
		{"paused queue", []launcher.Queue{{ID: "q1", Key: "h100", Paused: true, PausedNote: "firm\nware"}}, []launcher.Agent{right(0), right(1)}, `
			f.yml:9:9: error: nodes[0].gpus[0]: got queue h100 paused: firm ware, want it dispatching
			queue h100: 2 of 2`},
		{"one missing, another node's is not taken for it", queues, []launcher.Agent{right(0), agent("b1-1", "gpu=H100_BK", "vendor=nebius", "node=b1", "gpu-index=1")}, `
			f.yml:9:9: error: nodes[0].gpus[0]: got no agent on queue h100 for GPU 1, want one connected with the tags queue=h100,gpu=H100_BK,vendor=nebius,node=a1,gpu-index=1
			queue h100: 1 of 2`},
		{"other tags", queues, []launcher.Agent{right(1), agent("gpu-0", "gpu=h100", "gpu-index=0", "node=a1")}, `
			f.yml:9:9: error: nodes[0].gpus[0]: got agent gpu-0 with gpu=h100, no vendor, want gpu=H100_BK, vendor=nebius
			queue h100: 1 of 2`},
		{"no tags", queues, []launcher.Agent{right(1), agent("bare")}, `
			f.yml:9:9: error: nodes[0].gpus[0]: got agent bare with no gpu, no vendor, no node, no gpu-index, want gpu=H100_BK, vendor=nebius, node=a1, gpu-index=0
			queue h100: 1 of 2`},
		{"another queue", queues, []launcher.Agent{right(1), with(right(0), func(a *launcher.Agent) { a.Queue, a.QueueID = "cpu", "q0" })}, `
			f.yml:9:9: error: nodes[0].gpus[0]: got no agent on queue h100 for GPU 0, want one connected with the tags queue=h100,gpu=H100_BK,vendor=nebius,node=a1,gpu-index=0
			f.yml:9:9: error: nodes[0].gpus[0]: got agent a1-0 too with node=a1 and gpu-index=0, on queue cpu, want one agent for each GPU
			queue h100: 1 of 2`},
		{"paused and stopping", queues, []launcher.Agent{
			with(right(0), func(a *launcher.Agent) { a.Paused, a.PausedNote = true, "hot" }),
			with(right(1), func(a *launcher.Agent) { a.State = "stopping" }),
		}, `
			f.yml:9:9: error: nodes[0].gpus[0]: got agent a1-0 paused: hot, want it taking jobs
			f.yml:9:9: error: nodes[0].gpus[0]: got agent a1-1 stopping, want it connected
			queue h100: 0 of 2`},
		{"two on one GPU, and one more", queues, []launcher.Agent{right(0), right(1), with(right(1), func(a *launcher.Agent) { a.Name = "again" }), right(7)}, `
			f.yml:9:9: error: nodes[0].gpus[0]: got agent again too with node=a1 and gpu-index=1, on queue h100, want one agent for each GPU
			f.yml:9:9: note: nodes[0].gpus[0]: got agent a1-7 of node a1 on queue h100, want agents that are in the file
			queue h100: 2 of 2`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, faults := queuefile.Decode("f.yml", []byte(twoGPUs))
			if len(faults) > 0 {
				t.Fatalf("Decode = %v", faults)
			}
			var got strings.Builder
			live := &Live{tt.queues, tt.agents}
			c := live.Compare([]*queuefile.File{f})
			for _, f := range c.Faults {
				fmt.Fprint(&got, "\n\t\t\t", f)
			}
			for _, q := range c.Queues {
				fmt.Fprintf(&got, "\n\t\t\tqueue %s: %d of %d", q.Queue, q.There, q.Promised)
			}
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Errorf("compare (-want +got):\n%s", diff)
			}
		})
	}
}
