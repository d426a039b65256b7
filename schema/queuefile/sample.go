package queuefile

import (
	"fmt"
	"slices"
	"strings"
)

// Sample writes a commented queue file for count GPUs of one type on one node,
// for a person to correct. It passes [Check]: each agent gets what the row
// promises and at least what is recommended, and the machine is as large as
// that takes.
func Sample(row GPUType, vendor, node string, count int) string {
	gpus := row.whole()
	units := count // GPUs, or agents where there is no GPU
	share := Share{
		CPUs:      max(row.CPUs, gpus*needCPUs.better),
		MemoryGiB: max(row.MemoryGiB, gpus*needMemory.better),
		DiskGB:    max(10, gpus*needDisk.better),
	}
	agents := units / max(1, gpus)
	memory := agents*share.MemoryGiB + 4
	memory = max(memory, memory*32/31+1) // the machine keeps a thirty-second
	group := Group{Type: row.Name, Count: units, Queue: row.Queue, Agent: share}
	if row.Slice != "" && row.Maker == "nvidia" {
		group.Count = 0
		for i := range units {
			group.UUIDs = append(group.UUIDs, fmt.Sprintf("MIG-00000000-0000-0000-0000-%012x", i))
		}
	}
	if gpus > 1 {
		group.Agent.GPUs = gpus
	}
	return Write(vendor, Node{
		Name: node, Isolation: row.Isolation, GPUs: []Group{group},
		Machine: Machine{
			CPUs: agents*share.CPUs + HostCPUs, MemoryGiB: memory, DiskGB: agents*share.DiskGB + HostDiskGB,
			NetworkMbps: NetworkMbps(max(1, units)),
		},
	}, []GPUType{row})
}

// NetworkMbps is what a machine with so many GPUs should be able to download.
func NetworkMbps(gpus int) int { return gpus * needNetwork.better }

// Write writes a commented queue file of one node, for a person to correct. Rows are
// those of its groups, in their order.
func Write(vendor string, node Node, rows []GPUType) string {
	var b strings.Builder
	line := func(value, comment string) {
		if comment != "" {
			value = fmt.Sprintf("%-32s # %s", value, comment)
		}
		b.WriteString(value + "\n")
	}
	b.WriteString(`# Queue file: the machines that one vendor lends (docs/vendors.md). Correct it.
#   kbgen vendor check FILE           is it right?
#   kbgen vendor check --live FILE    are the agents there?
# Nothing in it is secret. On the machine, kbnode facts --queue-file writes it.

`)
	line("version: 1", "")
	line("vendor: "+vendor, "who lends, in lower case; tag \"vendor\" of the agents")
	line("contacts:", "who is asked when a machine misbehaves")
	line("  - name: GPU operations", "")
	line("    email: gpu-ops@example.com", "")
	line("    # chat: \"#gpu-ops on Discord\"", "")
	line("nodes:", "one entry for each machine")
	line("  - name: "+node.Name, "tag \"node\" of the agents")
	line("    isolation: "+node.Isolation, isolationComment(node.Isolation))
	line("    machine:", "all of it, the host's own share included")
	m := node.Machine
	line(fmt.Sprintf("      cpus: %d", m.CPUs), fmt.Sprintf("cores; %d stay with the host", HostCPUs))
	line(fmt.Sprintf("      memory_gib: %d", m.MemoryGiB), fmt.Sprintf("GiB; 1/32, at least 4, stays with the host: here %d", HostMemoryGiB(m.MemoryGiB)))
	line(fmt.Sprintf("      disk_gb: %d", m.DiskGB), fmt.Sprintf("GB; %d stay with the host and the images", HostDiskGB))
	line(fmt.Sprintf("      network_mbps: %d", m.NetworkMbps), "Mbps, fill in what the machine can download")
	line("    gpus:", "one entry for each GPU type")
	images := []string{}
	for i, g := range node.GPUs {
		writeGroup(line, rows[i], g)
		if image := rows[i].Image; image != "" && !slices.Contains(images, image) {
			images = append(images, image)
		}
	}
	if len(images) > 0 { // last: what a vendor corrects first stands above
		line("allow_tags: false", "true: machines may pull images by tag alone")
		line("# images:", "machines pull each by its digest")
	}
	for _, image := range images {
		line("#   - reference: "+image, "")
		line("#     digest: sha256:...", "of the image that the release names")
	}
	return b.String()
}

func writeGroup(line func(value, comment string), row GPUType, g Group) {
	gpus := row.whole()
	line("      - type: "+row.Name, "kbgen gpus lists them")
	writeDevices(line, row, g)
	line("        queue: "+g.Queue, fmt.Sprintf("jobs for %s go there", row.Name))
	line("        agent:", "one agent runs one job at a time and gives it")
	if g.Agent.GPUs > 1 {
		line(fmt.Sprintf("          gpus: %d", g.Agent.GPUs), "")
	}
	line(fmt.Sprintf("          cpus: %d", g.Agent.CPUs), fmt.Sprintf("at least %d", max(row.CPUs, gpus*needCPUs.least)))
	line(fmt.Sprintf("          memory_gib: %d", g.Agent.MemoryGiB), fmt.Sprintf("at least %d", max(row.MemoryGiB, gpus*needMemory.least)))
	line(fmt.Sprintf("          disk_gb: %d", g.Agent.DiskGB), fmt.Sprintf("at least %d", max(1, gpus*needDisk.least)))
}

func isolationComment(isolation string) string {
	if isolation == "step" {
		return "the step names its devices: one agent on the machine"
	}
	return "the machine gives each job its own devices"
}

// writeDevices writes which devices, and the other ways to say so as comments.
func writeDevices(line func(value, comment string), row GPUType, g Group) {
	if len(g.UUIDs) > 0 {
		comment := ""
		if row.Slice != "" {
			comment = fmt.Sprintf("of the %s slices, from nvidia-smi -L", row.Slice)
		}
		line("        uuids:", comment)
		for _, uuid := range g.UUIDs {
			line("          - "+uuid, "")
		}
		return
	}
	if len(g.Indexes) > 0 {
		line("        indexes: ["+strings.Trim(strings.Join(strings.Fields(fmt.Sprint(g.Indexes)), ", "), "[]")+"]", "these GPUs")
		return
	}
	if row.Maker == "none" {
		line(fmt.Sprintf("        count: %d", g.Count), "agents; there is no GPU to count")
		return
	}
	line(fmt.Sprintf("        count: %d", g.Count), "GPUs with the indexes from 0; or exactly one of")
	line("        # indexes: [0]", "these GPUs")
	switch row.Maker {
	case "nvidia":
		line("        # uuids: [GPU-...]", "these, from nvidia-smi -L: best, indexes move")
	case "amd":
		line("        # uuids: [GPU-...]", "these, from rocminfo: best, indexes move")
	}
}
