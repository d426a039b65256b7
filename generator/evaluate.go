// Package generator turns definitions into checked pipelines: a [Request] in,
// the bytes of one document out. It is pure. It knows no environment, files,
// clock or network, it never sees a payload, and it does not know who reads
// the bytes; the same request always gives the same bytes.
//
// # For the agent's interpolation
//
// Every document is meant for `buildkite-agent pipeline upload` as it works by
// default, with interpolation: a dollar sign meant for the job is written
// twice. There is one form for the pipe and for kbgen upload. With
// --no-interpolation dollar signs would stay doubled.
//
// # Checked before anyone sees it
//
// A function here returns either bytes that passed every check or an error,
// never both: go-pipeline, the agent's own parser, takes them without a
// warning; they keep the step format (package schema/pipeline), with keys
// unique; and after interpolation in an empty environment, and in one where
// every variable has a hostile value, exactly the steps that were meant come
// out.
//
// # Another pipeline
//
// A step kind is one function from a row to a [commandStep], a pipeline one
// exported function that lists steps and calls render. render escapes and
// checks; a step kind does neither.
package generator

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/pipelines"
)

// MaxPayloadChunks is how many variables may carry one payload: the launcher
// makes no more, since exec's limit on all variables together is near.
const MaxPayloadChunks = 16

// A Request says what to render.
type Request struct {
	GPUs []pipelines.GPUType // one step each, in this order; at least one

	// Image replaces the image of every docker row; empty means the rows' own.
	// It must be pinned, and rows of several vendors cannot share one.
	Image string

	// PayloadChunks is the number of KERNELBOT_PAYLOAD_<i> variables that the
	// build carries; 0 means one KERNELBOT_PAYLOAD.
	PayloadChunks int

	// JSON writes JSON instead of YAML. Both mean the same steps. YAML is for
	// people and goldens, JSON for pipes: cut short, it parses nowhere.
	JSON bool
}

// Evaluate renders the pipeline that evaluates one submission on each of the
// GPU types.
//
// Errors: every fault of the request, joined; or the checks that the document
// did not pass, which would be a fault of kbgen's own.
func Evaluate(r Request) ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	doc := document{Steps: make([]commandStep, 0, len(r.GPUs))}
	for _, g := range r.GPUs {
		step, err := evaluateStep(g, r)
		if err != nil {
			return nil, fmt.Errorf("building the step for %s: %w", g.Name, err)
		}
		doc.Steps = append(doc.Steps, step)
	}
	return render(doc, r.JSON)
}

// validate returns every fault of the request, joined.
func (r Request) validate() error {
	var faults []error
	if len(r.GPUs) == 0 {
		faults = append(faults, errors.New("nothing to render: no GPU type given"))
	}
	if r.PayloadChunks < 0 || r.PayloadChunks > MaxPayloadChunks {
		faults = append(faults, fmt.Errorf("payload chunks: got %d, want 0 to %d", r.PayloadChunks, MaxPayloadChunks))
	}
	seen := map[string]bool{}
	vendors := map[pipelines.Vendor]string{}
	for _, g := range r.GPUs {
		faults = append(faults, g.Validate())
		if g.Off != "" {
			faults = append(faults, &pipelines.OffError{Name: g.Name, Reason: g.Off})
		}
		if seen[g.Name] {
			faults = append(faults, fmt.Errorf("GPU type %s is asked for twice", g.Name))
		}
		seen[g.Name] = true
		if g.Platform == pipelines.Docker && vendors[g.Vendor] == "" {
			vendors[g.Vendor] = g.Name
		}
	}
	if r.Image != "" {
		faults = append(faults, pipelines.CheckImage(r.Image))
		if len(vendors) > 1 {
			var names []string
			for _, g := range r.GPUs {
				if vendors[g.Vendor] == g.Name {
					names = append(names, g.Name)
				}
			}
			faults = append(faults, fmt.Errorf("image %q cannot serve GPU types of several vendors (%s)", r.Image, strings.Join(names, ", ")))
		}
	}
	return errors.Join(faults...)
}
