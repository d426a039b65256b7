package queuefile_test

import (
	"fmt"

	"github.com/gpu-mode/kbgen/schema/queuefile"
)

// A queue file is decoded, and then compared with the table of GPU types.
func ExampleCheck() {
	file, faults := queuefile.Decode("node.yml", []byte(`version: 1
vendor: acme
contacts: [{name: Ops, email: ops@acme.example}]
nodes:
  - name: a1
    isolation: node
    machine: {cpus: 64, memory_gib: 256, disk_gb: 500, network_mbps: 10000}
    gpus:
      - {type: H100_BK, count: 2, queue: h100, agent: {cpus: 4, memory_gib: 64, disk_gb: 100}}
`))
	table := []queuefile.GPUType{{Name: "H100_BK", Queue: "h100", Maker: "nvidia", Isolation: "node", GPUs: 1, CPUs: 8, MemoryGiB: 64}}
	for _, f := range append(faults, queuefile.Check([]*queuefile.File{file}, table)...) {
		fmt.Println(f)
	}
	for _, a := range file.Agents() {
		fmt.Println(a.Node, a.Queue, a.Tags)
	}
	// Output:
	// node.yml:9:62: error: nodes[0].gpus[0].agent.cpus: got 4, want at least 8, what H100_BK promises to its jobs
	// a1 h100 [queue=h100 gpu=H100_BK vendor=acme node=a1 gpu-index=0]
	// a1 h100 [queue=h100 gpu=H100_BK vendor=acme node=a1 gpu-index=1]
}
