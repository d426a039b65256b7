package fleet_test

import (
	"os"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/launcher/fleet"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

// A vendor promises two agents, and one of them is there. In earnest, Live
// comes from [fleet.Read].
func ExampleLive_Compare() {
	file, _ := queuefile.Decode("node.yml", []byte(`version: 1
vendor: acme
contacts: [{name: Ops, email: ops@acme.example}]
nodes:
  - name: a1
    isolation: node
    machine: {cpus: 64, memory_gib: 256, disk_gb: 500, network_mbps: 10000}
    gpus:
      - {type: H100_BK, count: 2, queue: h100, agent: {cpus: 16, memory_gib: 64, disk_gb: 100}}
`))
	live := fleet.Live{
		Queues: []launcher.Queue{{ID: "q1", Key: "h100"}},
		Agents: []launcher.Agent{{
			Name: "a1-0", State: launcher.Connected, QueueID: "q1",
			Tags: []string{"queue=h100", "gpu=H100_BK", "vendor=acme", "node=a1", "gpu-index=0"},
		}},
	}
	found := live.Compare([]*queuefile.File{file})
	found.WriteText(os.Stdout)
	// Output:
	// node.yml:9:9: error: nodes[0].gpus[0]: got no agent on queue h100 for GPU 1, want one connected with the tags queue=h100,gpu=H100_BK,vendor=acme,node=a1,gpu-index=1
	// queue h100: 1 of 2 agents connected
}
