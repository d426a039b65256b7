package queuefile

import (
	"fmt"
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

	var b strings.Builder
	line := func(value, comment string) {
		if comment != "" {
			value = fmt.Sprintf("%-32s # %s", value, comment)
		}
		b.WriteString(value + "\n")
	}
	b.WriteString(`# Queue file: the machines that one vendor lends. Correct it, then run
#   kbgen vendor check FILE           is it right?
#   kbgen vendor check --live FILE    are the agents there?
# Nothing in it is secret. Docs: docs/vendors.md

`)
	line("version: 1", "")
	line("vendor: "+vendor, "who lends, in lower case; tag \"vendor\" of the agents")
	line("contacts:", "who is asked when a machine misbehaves")
	line("  - name: GPU operations", "")
	line("    email: gpu-ops@example.com", "")
	line("    # chat: \"#gpu-ops on Discord\"", "")
	line("nodes:", "one entry for each machine")
	line("  - name: "+node, "tag \"node\" of the agents")
	line("    isolation: "+row.Isolation, isolationComment(row))
	line("    machine:", "all of it, the host's own share included")
	line(fmt.Sprintf("      cpus: %d", agents*share.CPUs+HostCPUs), fmt.Sprintf("cores; %d stay with the host", HostCPUs))
	line(fmt.Sprintf("      memory_gib: %d", memory), fmt.Sprintf("GiB; 1/32, at least 4, stays with the host: here %d", HostMemoryGiB(memory)))
	line(fmt.Sprintf("      disk_gb: %d", agents*share.DiskGB+hostDiskGB), fmt.Sprintf("GB; %d stay with the host and the images", hostDiskGB))
	line(fmt.Sprintf("      network_mbps: %d", max(1, units)*needNetwork.better), "Mbps, what the machine can download")
	line("    gpus:", "one entry for each GPU type")
	line("      - type: "+row.Name, "kbgen gpus lists them")
	sampleDevices(line, row, units)
	line("        queue: "+row.Queue, fmt.Sprintf("jobs for %s go there", row.Name))
	line("        agent:", "one agent runs one job at a time and gives it")
	if gpus > 1 {
		line(fmt.Sprintf("          gpus: %d", gpus), "")
	}
	line(fmt.Sprintf("          cpus: %d", share.CPUs), fmt.Sprintf("at least %d", max(row.CPUs, gpus*needCPUs.least)))
	line(fmt.Sprintf("          memory_gib: %d", share.MemoryGiB), fmt.Sprintf("at least %d", max(row.MemoryGiB, gpus*needMemory.least)))
	line(fmt.Sprintf("          disk_gb: %d", share.DiskGB), fmt.Sprintf("at least %d", max(1, gpus*needDisk.least)))
	if row.Image != "" { // last: what a vendor corrects first stands above
		line("allow_tags: false", "true: machines may pull images by tag alone")
		line("# images:", "machines pull each by its digest")
		line("#   - reference: "+row.Image, "")
		line("#     digest: sha256:...", "of the image that the release names")
	}
	return b.String()
}

func isolationComment(row GPUType) string {
	if row.Isolation == "step" {
		return "the step names its devices: one agent on the machine"
	}
	return "the machine gives each job its own devices"
}

// sampleDevices writes which devices, in the one way that suits the row, and
// the others as comments.
func sampleDevices(line func(value, comment string), row GPUType, units int) {
	if row.Slice != "" && row.Maker == "nvidia" {
		line("        uuids:", fmt.Sprintf("of the %s slices, from nvidia-smi -L", row.Slice))
		for i := range units {
			line(fmt.Sprintf("          - MIG-00000000-0000-0000-0000-%012x", i), "")
		}
		return
	}
	if row.Maker == "none" {
		line(fmt.Sprintf("        count: %d", units), "agents; there is no GPU to count")
		return
	}
	line(fmt.Sprintf("        count: %d", units), "GPUs with the indexes from 0; or exactly one of")
	line("        # indexes: [0]", "these GPUs")
	switch row.Maker {
	case "nvidia":
		line("        # uuids: [GPU-...]", "these, from nvidia-smi -L: best, indexes move")
	case "amd":
		line("        # uuids: [GPU-...]", "these, from rocminfo: best, indexes move")
	}
}
