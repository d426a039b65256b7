package schema

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gpu-mode/kbgen/schema/text"
)

// Harnesses: who judges a submission.
const (
	// HarnessIsolated is kbrun's own: a judge that holds seed, reference and
	// clock, and a worker that gets inputs and returns outputs as data.
	HarnessIsolated = "isolated"
	// HarnessLegacy is the harness that the task brings.
	HarnessLegacy = "legacy"
)

// Harnesses lists what a task may ask for; one that asks for nothing gets
// isolated where its main file is a known one in Python, else legacy.
func Harnesses() []string { return []string{HarnessIsolated, HarnessLegacy} }

// Inputs: where the inputs of a measured call are.
const (
	// InputsCold: no cache holds the inputs, because the judge writes 256 MiB after copying.
	InputsCold = "cold"
	// InputsWarm: the caches are as the copy of the inputs left them.
	InputsWarm = "warm"
)

// Inputs lists what a task may ask for; one that asks for nothing gets cold inputs on a
// device and warm ones in the host's memory.
func Inputs() []string { return []string{InputsCold, InputsWarm} }

// An Extension is what a task may ask for that Kernelbot knows nothing of. The zero value
// asks for nothing.
type Extension struct {
	Harness  string      `json:"harness,omitempty"` // one of Harnesses, or "" for kbrun to choose
	Inputs   string      `json:"inputs,omitempty"`  // one of Inputs; needs HarnessIsolated
	Evidence MinEvidence `json:"evidence,omitzero"` // needs HarnessIsolated
}

// MinEvidence is the least evidence that each case's figure needs in leaderboard mode. A case
// that lacks it is measured longer. If time runs out, the outcome is ambiguous.
type MinEvidence struct {
	Runs  int     `json:"runs,omitempty"`  // counted calls, 0 to 1000
	Width float64 `json:"width,omitempty"` // of the 95 % interval, relative to the mean, at most; 0: any
}

// Faults calls fault for each invalid value, with its key.
func (e *Extension) Faults(fault func(key, got, want string)) {
	if e.Harness != "" && !slices.Contains(Harnesses(), e.Harness) {
		fault("harness", text.Quote(e.Harness), fmt.Sprintf("one of %q, or none", Harnesses()))
	}
	if e.Inputs != "" && !slices.Contains(Inputs(), e.Inputs) {
		fault("inputs", text.Quote(e.Inputs), fmt.Sprintf("one of %q, or none", Inputs()))
	}
	if n := e.Evidence.Runs; n < 0 || n > 1000 {
		fault("evidence.runs", strconv.Itoa(n), "0 to 1000 calls")
	}
	if w := e.Evidence.Width; !(w >= 0 && w <= 1) {
		fault("evidence.width", FloatRepr(w), "0 to 1, a part of the mean")
	}
	if e.Harness != HarnessIsolated && (e.Inputs != "" || e.Evidence != MinEvidence{}) {
		fault("harness", text.Quote(e.Harness), "isolated, which inputs and evidence need")
	}
}

// A HarnessReport says which harness judged and how far it can be believed.
type HarnessReport struct {
	Name    string `json:"name"`              // one of Harnesses
	Variant string `json:"variant,omitempty"` // the known main file that it took the rules from, "pmpp_v2"
	Why     string `json:"why,omitempty"`     // why not isolated
	// Proof shows that the isolated harness works on this GPU; nil: there is none, or it was not asked for.
	Proof *Proof `json:"proof,omitempty"`

	// What the task asks for, see [Extension].
	Inputs   string      `json:"inputs,omitempty"`
	Evidence MinEvidence `json:"evidence,omitzero"`

	// Preloaded lists the modules that judge and worker imported once for all
	// phases; NotPreloaded says why there are none.
	Preloaded    []string `json:"preloaded,omitempty"`
	NotPreloaded string   `json:"not_preloaded,omitempty"`
}

// SelfCheckedText is what a person is told of a pass that is [Evidence]'s
// SelfChecked.
const SelfCheckedText = "self-checked: submission, checker and clock ran in one process, so this pass is the submission's own word"

// WithheldText stands in a result for what the submission or its harness said
// in a run whose seed is secret: it could say the seed.
const WithheldText = "withheld: " + WithheldWhy

// WithheldWhy is the reason alone.
const WithheldWhy = "the run's seed is secret"

// A Measurement is how one case was timed by the isolated harness, in
// nanoseconds of the judge's clock.
type Measurement struct {
	Phase string `json:"phase"`
	Case  int    `json:"case"` // as in the keys of the report

	Samples    []float64  `json:"samples_ns"` // counted calls, less the floor and what others took
	Floor      float64    `json:"floor_ns"`   // what handing over and back takes, by an honest native echo
	Resolution float64    `json:"resolution_ns"`
	Interval   [2]float64 `json:"interval_ns"` // 95 % confidence interval of the mean
	LeftOut    int        `json:"left_out"`    // calls that had to wait for a core and do not count

	Strict *float64 `json:"strict_ns,omitempty"` // mean of the calls whose worker was frozen while its input was copied

	// Slope is what one call more takes where several are made in one go, of
	// Batches calls each, smallest first; nil without any. FewerBatches says why
	// some are missing. Overlaps: the slope is clearly below the figure, as one
	// call was worked on during another.
	Slope        *float64 `json:"slope_ns,omitempty"`
	Batches      []int    `json:"batches,omitempty"`
	FewerBatches string   `json:"fewer_batches,omitempty"`
	Overlaps     bool     `json:"overlaps,omitempty"`
}

// An Explanation is what a submitter is told beyond the outcome's one line. Its
// texts come from the submission: they are cleaned and bounded, and with a
// secret seed left out.
type Explanation struct {
	File   string `json:"file,omitempty"` // the submitter's own, "submission.py"
	Line   int    `json:"line,omitempty"` // counted from 1
	Source string `json:"source,omitempty"`
	Error  string `json:"error,omitempty"` // "ValueError: …"

	// Traceback holds the frames in the submitter's files, outermost first:
	// "submission.py:12 in custom_kernel: return a @ b".
	Traceback []string `json:"traceback,omitempty"`
	Printed   string   `json:"printed,omitempty"` // the last of what it printed

	Expected string `json:"expected,omitempty"`
	Got      string `json:"got,omitempty"`

	NotRun   []NotRun `json:"not_run,omitempty"`
	Withheld string   `json:"withheld,omitempty"` // why texts are left out
}

// A NotRun is a case that was never begun, which is no failure of its own.
type NotRun struct {
	Case string `json:"case"` // "test.3"
	Why  string `json:"why"`
}

// Bounds of an explanation's texts, in characters.
const (
	MaxExplained = 400  // each text but Printed
	MaxPrinted   = 2000 // Printed
	MaxFrames    = 8    // of Traceback, the innermost are kept
)
