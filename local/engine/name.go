package engine

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/local/steps"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Name is what to call a job: its step's label, else its key, else what it does.
func (j *Job) Name(env map[string]string) string {
	return j.numbered(cmp.Or(text.Line(j.Label, 200), text.Line(j.StepKey, 200), j.Step.Does(env), nameless))
}

// ShortName prefers the key to the label.
func (j *Job) ShortName(env map[string]string) string {
	return j.numbered(cmp.Or(text.Line(j.StepKey, 200), text.Line(j.Label, 200), j.Step.Does(env), nameless))
}

// nameless is a job whose step says nothing of itself.
const nameless = "step without a name"

func (j *Job) numbered(name string) string {
	if len(j.Matrix) > 0 && (j.Label == "" || !j.labelTells()) {
		name += " (" + text.Line((&steps.Variant{Values: j.Matrix}).Name(), 200) + ")"
	}
	if j.ParallelTotal > 0 {
		name += fmt.Sprintf(" %d/%d", j.ParallelIndex+1, j.ParallelTotal)
	}
	return name
}

// labelTells reports whether the label names every value of the job's
// permutation.
func (j *Job) labelTells() bool {
	for _, value := range j.Matrix {
		if !strings.Contains(j.Label, value) {
			return false
		}
	}
	return true
}
