package launcher

import (
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// An Overview is a build of a launcher, as a list shows it.
type Overview struct {
	Build    int    `json:"build"`
	BuildURL string `json:"build_url"`
	State    string `json:"state" jsonschema:"Buildkite's word; says nothing about the submission"`
	Outcome  string `json:"outcome,omitempty" jsonschema:"of the run, once it has one"`
	RunID    string `json:"run_id"`
	GPUType  string `json:"gpu_type"`
	Queue    string `json:"queue"`
	Mode     string `json:"mode"`
	Created  string `json:"created" jsonschema:"RFC 3339"`
	Finished string `json:"finished,omitempty" jsonschema:"RFC 3339"`
}

// Overview returns what a list shows of a build.
func (b *Build) Overview() Overview {
	o := Overview{Build: b.Number, BuildURL: b.WebURL, State: text.Line(b.State, 40), RunID: b.RunID(), GPUType: b.GPU(), Queue: b.Queue(), Mode: b.Mode()}
	outcome, _ := b.MetaData[schema.MetaOutcome(o.RunID)].(string)
	o.Outcome = text.Line(outcome, 40)
	if b.CreatedAt != nil {
		o.Created = b.CreatedAt.UTC().Format(time.RFC3339)
	}
	if b.FinishedAt != nil {
		o.Finished = b.FinishedAt.UTC().Format(time.RFC3339)
	}
	return o
}
