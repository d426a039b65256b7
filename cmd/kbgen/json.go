package main

import (
	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/pipelines"
)

// What --json prints, one type each; kbgen schema publishes their schemas. Names
// are in snake case and carry their unit.
type (
	gpuTypeJSON struct {
		Name           string              `json:"name" jsonschema:"as submitters write it, H100_BK"`
		Vendor         pipelines.Vendor    `json:"vendor" jsonschema:"none, nvidia, amd or google"`
		Arch           string              `json:"arch,omitempty" jsonschema:"what nvcc is given after sm_, 90a; NVIDIA only"`
		Queue          string              `json:"queue"`
		GPUs           int                 `json:"gpus" jsonschema:"devices that one job gets"`
		Slice          string              `json:"slice,omitempty" jsonschema:"part of one GPU, as MIG names it"`
		CPUs           int                 `json:"cpus" jsonschema:"whole cores that one job gets"`
		MemoryGiB      int                 `json:"memory_gib" jsonschema:"host memory that one job gets"`
		Platform       pipelines.Platform  `json:"platform" jsonschema:"host, docker or kubernetes"`
		Image          string              `json:"image,omitempty" jsonschema:"of the runner; none on a host"`
		Isolation      pipelines.Isolation `json:"isolation" jsonschema:"node or step: who gives a job its devices and limits"`
		Sandbox        string              `json:"sandbox" jsonschema:"the least sandbox that a submission runs in: none, partial or full"`
		TimeoutSeconds int                 `json:"timeout_seconds" jsonschema:"of one job, from start to finish"`
		Device         *deviceTypeJSON     `json:"device,omitempty" jsonschema:"how each device is known"`
		Off            string              `json:"off,omitempty" jsonschema:"why nothing may be sent there now"`
	}
	deviceTypeJSON struct {
		Names     []string `json:"names" jsonschema:"patterns; one of them has to match"`
		Arch      string   `json:"arch,omitempty" jsonschema:"compute capability without its point, or gfx architecture"`
		MemoryGiB int      `json:"memory_gib,omitempty" jsonschema:"the least"`
	}

	kindsJSON struct {
		Kinds     []namedJSON `json:"kinds"`
		Pipelines []namedJSON `json:"pipelines"`
	}
	namedJSON struct {
		Name  string `json:"name"`
		About string `json:"about" jsonschema:"one line"`
	}

	plannedStepJSON struct {
		Key            string `json:"key"`
		Kind           string `json:"kind"`
		Queue          string `json:"queue"`
		GPUType        string `json:"gpu_type" jsonschema:"or the helper machine"`
		Image          string `json:"image,omitempty" jsonschema:"none outside containers"`
		TimeoutMinutes int    `json:"timeout_minutes"`
		Tries          int    `json:"tries" jsonschema:"starts in the worst case"`
		GPUs           int    `json:"gpus" jsonschema:"devices of one job"`
		GPUMinutes     int    `json:"gpu_minutes" jsonschema:"in the worst case: devices, timeout and tries multiplied"`
	}
)

func gpuTypesAsJSON(table pipelines.Table) []gpuTypeJSON {
	rows := []gpuTypeJSON{}
	for _, g := range table {
		row := gpuTypeJSON{
			Name: g.Name, Vendor: g.Vendor, Arch: g.Arch, Queue: g.Queue, GPUs: g.GPUs, Slice: g.Slice, CPUs: g.CPUs, MemoryGiB: g.MemoryGiB,
			Platform: g.Platform, Image: g.Image, Isolation: g.Isolation, Sandbox: g.LeastSandbox(), TimeoutSeconds: int(g.Timeout.Seconds()), Off: g.Off,
		}
		if d := g.Device; len(d.Names) > 0 {
			row.Device = &deviceTypeJSON{d.Names, d.Arch, d.MemoryGiB}
		}
		rows = append(rows, row)
	}
	return rows
}

func kindsAsJSON() kindsJSON {
	var out kindsJSON
	for _, k := range pipelines.Kinds {
		out.Kinds = append(out.Kinds, namedJSON{k.Name, k.About})
	}
	for _, p := range pipelines.Pipelines {
		out.Pipelines = append(out.Pipelines, namedJSON{p.Name, p.About})
	}
	return out
}

func planAsJSON(plan []generator.PlannedStep) []plannedStepJSON {
	steps := []plannedStepJSON{}
	for _, s := range plan {
		steps = append(steps, plannedStepJSON{s.Key, s.Kind, s.Queue, s.GPU, s.Image, s.Minutes, s.Tries, s.GPUs, s.GPUMinutes()})
	}
	return steps
}
