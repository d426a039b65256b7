package verdict

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// The JSON form. Members without a value are left out, but for those that say
// yes or no.
type (
	verdictJSON struct {
		RunID       string      `json:"run_id,omitempty"`
		GPUType     string      `json:"gpu_type,omitempty"`
		Queue       string      `json:"queue,omitempty"`
		Judged      bool        `json:"judged"`
		Passed      bool        `json:"passed"`
		Outcome     outcomeJSON `json:"outcome"`
		Score       *Ranked     `json:"score,omitempty"`
		NoScore     string      `json:"no_score,omitempty"`
		Runs        []Run       `json:"runs"`
		Ambiguous   []string    `json:"ambiguous,omitempty"`
		SharedJudge bool        `json:"shared_judge"`

		SelfChecked     bool                  `json:"self_checked"`
		SelfCheckedText string                `json:"self_checked_text,omitempty"`
		Explanation     *schema.Explanation   `json:"explanation,omitempty"`
		Device          string                `json:"device,omitempty"`
		Harness         *schema.HarnessReport `json:"harness,omitempty"`
		Next            string                `json:"next,omitempty"`
	}
	outcomeJSON struct {
		Name  string `json:"name"`
		Fault string `json:"fault"`
		Retry bool   `json:"retry"`
		Text  string `json:"text"`
		Phase string `json:"phase,omitempty"`
	}
	caseJSON struct {
		Key     string   `json:"key"`
		Spec    string   `json:"spec"`
		Status  string   `json:"status,omitempty"`
		Message string   `json:"message,omitempty"`
		Mean    *float64 `json:"mean_ns,omitempty"`
		Err     *float64 `json:"err_ns,omitempty"`
		Best    *float64 `json:"best_ns,omitempty"`
		Worst   *float64 `json:"worst_ns,omitempty"`

		Samples []float64 `json:"samples_ns,omitempty"`
		Chart   string    `json:"chart,omitempty"`
		Profile string    `json:"profile,omitempty"`
	}
)

// MarshalJSON writes the verdict for programs and pages: an object with run_id,
// judged, passed, outcome, score, runs and their cases. Times are nanoseconds,
// the score is in seconds. Foreign text is made printable and keeps its lines; it
// is as long as it is in the result.
func (v Verdict) MarshalJSON() ([]byte, error) {
	o := v.Outcome
	out := verdictJSON{
		RunID: v.RunID, GPUType: text.Lines(v.GPUType), Queue: text.Lines(v.Queue), Judged: v.Judged, Passed: v.Passed, SharedJudge: v.SharedJudge,
		Outcome: outcomeJSON{o.Name, o.Fault, o.Retry, text.Lines(o.Text), o.Phase},
		Score:   v.Score, NoScore: v.NoScore, Runs: []Run{},
	}
	out.SelfChecked, out.Device, out.Next = v.SelfChecked, text.Lines(v.Device), o.Next()
	if v.SelfChecked && v.Passed {
		out.SelfCheckedText = schema.SelfCheckedText
	}
	out.Explanation, out.Harness = cleanExplanation(v.Explanation), cleanHarness(v.Harness)
	for _, a := range v.Ambiguous {
		out.Ambiguous = append(out.Ambiguous, text.Lines(a))
	}
	for _, r := range v.Runs {
		r.Name, r.Output, r.Cases = text.Lines(r.Name), text.Lines(r.Output), append([]Case{}, r.Cases...)
		out.Runs = append(out.Runs, r)
	}
	return json.Marshal(out)
}

// MarshalJSON writes the case as [Verdict.MarshalJSON] says.
func (c Case) MarshalJSON() ([]byte, error) {
	return json.Marshal(caseJSON{
		Key: c.Key, Spec: text.Lines(c.Spec), Status: text.Lines(c.Status), Message: text.Lines(c.Message),
		Mean: nanoseconds(c.Mean), Err: nanoseconds(c.Err), Best: nanoseconds(c.Best), Worst: nanoseconds(c.Worst),
		Profile: text.Lines(c.Profile), Samples: finite(c.Samples), Chart: chart(c.Samples),
	})
}

// cleanExplanation is x with its texts made printable.
func cleanExplanation(x *schema.Explanation) *schema.Explanation {
	if x == nil {
		return nil
	}
	y := *x
	y.Traceback, y.NotRun = nil, nil
	for _, s := range []*string{&y.File, &y.Source, &y.Error, &y.Printed, &y.Expected, &y.Got, &y.Withheld} {
		*s = text.Lines(*s)
	}
	for _, f := range x.Traceback {
		y.Traceback = append(y.Traceback, text.Lines(f))
	}
	for _, c := range x.NotRun {
		y.NotRun = append(y.NotRun, schema.NotRun{Case: text.Lines(c.Case), Why: text.Lines(c.Why)})
	}
	return &y
}

// cleanHarness is h with its texts made printable.
func cleanHarness(h *schema.HarnessReport) *schema.HarnessReport {
	if h == nil {
		return nil
	}
	c := *h
	c.Preloaded = nil
	for _, s := range []*string{&c.Name, &c.Variant, &c.Why, &c.Inputs, &c.NotPreloaded} {
		*s = text.Lines(*s)
	}
	for _, module := range h.Preloaded {
		c.Preloaded = append(c.Preloaded, text.Lines(module))
	}
	return &c
}

// finite leaves out what JSON cannot hold.
func finite(samples []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(samples), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

// nanoseconds reads what a tester wrote; nil for what is no number of JSON's.
func nanoseconds(s string) *float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
