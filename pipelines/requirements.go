package pipelines

import "github.com/gpu-mode/kbgen/schema/queuefile"

// Requirements are what each row of the table needs of machines, for
// [queuefile.Check].
func (t Table) Requirements() []queuefile.GPUType {
	rows := make([]queuefile.GPUType, len(t))
	for i, g := range t {
		rows[i] = queuefile.GPUType{
			Name: g.Name, Maker: string(g.Vendor), Queue: g.Queue, Slice: g.Slice,
			GPUs: g.GPUs, CPUs: g.CPUs, MemoryGiB: g.MemoryGiB, Isolation: string(g.Isolation), Image: g.Image, Off: g.Off,
		}
	}
	return rows
}
