package setup

import (
	"strings"

	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/pipelines"
)

// stepsOfRows are the pipelines whose steps go to a row's agents.
var stepsOfRows = []string{"evaluate", "smoke", "isolation"}

// Rows returns kbgen's rows as a plan needs them.
func Rows() (map[string]plan.Row, error) {
	rows := map[string]plan.Row{}
	for _, g := range pipelines.Fleet {
		commands, err := rowCommands(g)
		if err != nil {
			return nil, err
		}
		shm := g.ShmGiB
		if shm == 0 {
			shm = pipelines.DefaultShmGiB
		}
		rows[g.Name] = plan.Row{
			Name: g.Name, Vendor: string(g.Vendor), Slice: g.Slice, Platform: string(g.Platform), Queue: g.Queue, Image: g.Image,
			GPUs: g.GPUs, CPUs: g.CPUs, MemoryGiB: g.MemoryGiB, ShmGiB: shm, Timeout: g.Timeout, Commands: commands,
		}
	}
	return rows, nil
}

// rowCommands are what kbgen's steps run on a row that has no container, each as
// a job has it in BUILDKITE_COMMAND.
func rowCommands(g pipelines.GPUType) ([]string, error) {
	if g.Platform != pipelines.Host {
		return nil, nil
	}
	g.Off = "" // a row that is off now may be on tomorrow
	var commands []string
	for _, name := range stepsOfRows {
		p, err := pipelines.Find(name)
		if err != nil {
			return nil, err
		}
		if p.Serves != nil && !p.Serves(g) {
			continue
		}
		steps, err := p.Steps(pipelines.Request{GPUs: []pipelines.GPUType{g}, Secret: &pipelines.Run{}})
		if err != nil {
			return nil, err
		}
		for _, s := range steps {
			commands = append(commands, strings.Join(s.Command, "\n"))
		}
	}
	return commands, nil
}
