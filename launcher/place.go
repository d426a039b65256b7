package launcher

import (
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A WrongMachineError is a result of this run for another GPU type or queue than
// was asked for, whatever its verdict: a pipeline, or an agent's tags, led the
// build to the wrong machine. The fault is not the submission's.
type WrongMachineError struct {
	RunID            string
	Build            int
	BuildURL         string
	GPU, Queue       string // that were asked for
	GotGPU, GotQueue string // that the result names
	Outcome          string // of the result, one line
}

func (e *WrongMachineError) Error() string {
	return fmt.Sprintf("build %d (%s): the result of run %s is for GPU type %s on queue %s, want %s on %s: "+
		"a pipeline or an agent serves the wrong queue, and this is no verdict on the submission (%s)",
		e.Build, e.BuildURL, e.RunID, orUnknown(e.GotGPU), orUnknown(e.GotQueue), e.GPU, e.Queue, e.Outcome)
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return text.Quote(s)
}

// right refuses a result for another GPU type or queue. What a result does not
// name, as those of older runners, is taken for right and logged.
func (w *waiter) right(r *schema.Result) error {
	if r.GPUType == "" || r.Queue == "" {
		w.c.log.Warn("the result does not name GPU type and queue, as older runners do: not compared with what was asked for",
			"build", w.build.Number, "run", w.r.ID, "gpu", w.r.GPU, "queue", w.r.Queue)
	}
	if (r.GPUType == "" || w.r.GPU == "" || strings.EqualFold(r.GPUType, w.r.GPU)) && (r.Queue == "" || w.r.Queue == "" || r.Queue == w.r.Queue) {
		return nil
	}
	o := r.Outcome
	return &WrongMachineError{
		RunID: w.r.ID, Build: w.build.Number, BuildURL: w.build.WebURL, GPU: w.r.GPU, Queue: w.r.Queue,
		GotGPU: r.GPUType, GotQueue: r.Queue, Outcome: text.Line(o.Name+": "+o.Text, 200),
	}
}
