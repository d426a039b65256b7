package schema

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ProofDir is where kbrun prove leaves a proof for each GPU, named by its UUID, and where
// an evaluation looks for one. A step of kbnode's finds its machine's proofs there.
const ProofDir = "/var/lib/kbrun/proofs"

// A Proof is what kbrun prove found out: whether the isolated harness can be relied on
// for tensors on one GPU. It holds for that GPU, driver, torch and kbrun only.
type Proof struct {
	Time   time.Time `json:"time"`
	Runner string    `json:"runner"` // kbrun's version
	Digest string    `json:"digest"` // SHA-256 of kbrun's program, in hexadecimal
	Device string    `json:"device"` // the GPU's name
	UUID   string    `json:"uuid"`   // the GPU's
	Driver string    `json:"driver"` // version
	Torch  string    `json:"torch"`  // version

	Sandbox    string       `json:"sandbox"`       // the level that it was proved in
	Resolution float64      `json:"resolution_ns"` // of a time
	Checks     []ProofCheck `json:"checks"`
	Times      []ProofTime  `json:"times"`
	// NotTried says why C++ was not tried, for example for want of a compiler; "" if it was,
	// even if nothing compiled.
	NotTried string `json:"not_tried,omitempty"`
}

// A ProofCheck is one thing that was tried.
type ProofCheck struct {
	Lang    string  `json:"lang"` // LangPython or LangCUDA
	Name    string  `json:"name"`
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`        // that it took
	Text    string  `json:"text,omitempty"` // what happened
}

// Title names the check among those of both languages.
func (c *ProofCheck) Title() string {
	if c.Lang == LangCUDA {
		return "C++ " + c.Name
	}
	return c.Name
}

// A ProofTime is a kernel of known work, timed in three ways. Figures are in
// nanoseconds for each call.
type ProofTime struct {
	Lang     string     `json:"lang"`        // LangPython or LangCUDA
	Events   float64    `json:"events_ns"`   // by the GPU's own events, which leave out the launch
	Worker   float64    `json:"worker_ns"`   // by the process that launches it
	Interval [2]float64 `json:"interval_ns"` // by the isolated harness: 95 % confidence interval of the mean
	Strict   float64    `json:"strict_ns"`   // by its strict calls
	Calls    int        `json:"calls"`
	LeftOut  int        `json:"left_out"`
}

// Failed says which checks failed and how, "" if none did. With languages it looks at their
// checks only.
func (p *Proof) Failed(langs ...string) string {
	var failed []string
	checked := false
	for _, c := range p.Checks {
		if len(langs) > 0 && !slices.Contains(langs, c.Lang) {
			continue
		}
		if checked = true; !c.OK {
			failed = append(failed, c.Title()+": "+c.Text)
		}
	}
	if !checked {
		return "nothing was checked"
	}
	return strings.Join(failed, "; ")
}

// Summary says in a line what was checked, and which checks failed.
func (p *Proof) Summary() string {
	passed := map[string]int{}
	for _, c := range p.Checks {
		if c.OK {
			passed[c.Lang]++
		}
	}
	words := fmt.Sprintf("%d checks passed in Python, %d in C++", passed[LangPython], passed[LangCUDA])
	if p.NotTried != "" {
		words = fmt.Sprintf("%d checks passed in Python; C++ was not tried: %s", passed[LangPython], p.NotTried)
	}
	if failed := p.Failed(); failed != "" {
		words += "; failed: " + failed
	}
	return words
}
