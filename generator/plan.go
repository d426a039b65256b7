package generator

import (
	"cmp"

	"github.com/gpu-mode/kbgen/pipelines"
)

// A PlannedStep is a step as people plan with it.
type PlannedStep struct {
	Key, Kind string
	Queue     string
	GPU       string // GPU type, or the row of ServiceQueues
	Image     string // empty outside containers
	Minutes   int    // the timeout
	Tries     int    // starts in the worst case; 0 when it is skipped
	GPUs      int    // devices of one job
	Skip      string `json:",omitempty"` // why it does not run; empty: it does
}

// GPUMinutes is what the step costs in the worst case: devices × timeout ×
// tries.
func (s PlannedStep) GPUMinutes() int { return s.GPUs * s.Minutes * s.Tries }

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
	}
	return plan, nil
}
