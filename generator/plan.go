package generator

import (
	"cmp"

	"github.com/gpu-mode/kbgen/pipelines"
)

// A PlannedStep is a step as people plan with it.
type PlannedStep struct {
	Key        string `json:"key"`
	Kind       string `json:"kind"`
	Queue      string `json:"queue"`
	GPU        string `json:"gpu_type" jsonschema:"or the helper machine"`
	Image      string `json:"image,omitempty" jsonschema:"none outside containers"`
	Minutes    int    `json:"timeout_minutes"`
	Tries      int    `json:"tries" jsonschema:"starts in the worst case"` // 0 when it is skipped
	GPUs       int    `json:"gpus" jsonschema:"devices of one job"`
	GPUMinutes int    `json:"gpu_minutes" jsonschema:"in the worst case: devices, timeout and tries multiplied"`
	Skip       string `json:"-"` // why it does not run; empty: it does
}

// Plan lists the steps of a pipeline.
func Plan(p pipelines.Pipeline, r pipelines.Request) ([]PlannedStep, error) {
	steps, _, err := build(p, r)
	if err != nil {
		return nil, err
	}
	plan := make([]PlannedStep, len(steps))
	for i, s := range steps {
		plan[i] = PlannedStep{
			Key: s.Key, Kind: s.Kind, Queue: s.On.Queue, GPU: s.On.Name,
			Image: cmp.Or(s.Image, s.On.Image), Minutes: int(s.Timeout.Minutes()), Tries: s.Retry.Tries(platformOf(s)), GPUs: s.On.GPUs,
		}
		if platformOf(s) == pipelines.Host {
			plan[i].Image = ""
		}
		if plan[i].Skip = s.Skip; s.Skip != "" {
			plan[i].Tries = 0
		}
		plan[i].GPUMinutes = s.On.GPUs * plan[i].Minutes * plan[i].Tries
	}
	return plan, nil
}
