package schema

import (
	"encoding/json"
	"slices"

	"github.com/gpu-mode/kbgen/schema/text"
)

// Evidence is what the runner saw beside the verdict. Each part stands in
// result.json under a top-level key of its own, which Kernelbot's parser
// ignores: gpu_type, queue, timing, device, versions, sandbox, harness,
// measurements, explanation, ambiguous, shared_judge, self_checked, retained.
type Evidence struct {
	GPUType string `json:"gpu_type,omitempty"` // what the job was for, "H100_BK"; "": nobody said, as in older runners
	Queue   string `json:"queue,omitempty"`    // the queue that it came by

	Timing   *Timing        `json:"timing,omitempty"`
	Device   *DeviceReport  `json:"device,omitempty"`
	Versions *Versions      `json:"versions,omitempty"`
	Sandbox  *Sandbox       `json:"sandbox,omitempty"`
	Harness  *HarnessReport `json:"harness,omitempty"` // nil: none was chosen yet

	Measurements []Measurement `json:"measurements,omitempty"` // of the isolated harness only
	Explanation  *Explanation  `json:"explanation,omitempty"`  // nil: there is nothing more to say

	// Ambiguous says, one line each, why a timing may not be the submission's
	// own doing: the device was slowed down, or somebody else was on it.
	Ambiguous []string `json:"ambiguous,omitempty"`

	// SharedJudge: the submission ran in a process that holds the report on it,
	// and could have written that. False: this was not seen.
	SharedJudge bool `json:"shared_judge,omitempty"`
	// SelfChecked: the submission ran in one process with its checker and the
	// clock, so that a pass is its own word ([SelfCheckedText]).
	SelfChecked bool `json:"self_checked,omitempty"`
	// Retained: an earlier try of the job judged, on the same machine, and could
	// not hand the result over. Everything else, the timing too, is of that try.
	Retained bool `json:"retained,omitempty"`
}

// A Timing says where a job's time went, in seconds of wall time.
type Timing struct {
	Decode float64       `json:"decode_s"`          // finding and reading the payload
	Probe  float64       `json:"probe_s"`           // asking for devices and their health
	Total  float64       `json:"total_s"`           // from kbrun's start to the result
	Budget float64       `json:"budget_s"`          // what the task's limits allow; 0: no limit
	Peak   int64         `json:"runner_peak_bytes"` // of kbrun itself, resident
	Phases []PhaseTiming `json:"phases"`
}

// A PhaseTiming is one phase; what did not happen is absent.
type PhaseTiming struct {
	Name    string       `json:"name"`
	Write   float64      `json:"write_s"` // files, both times
	WarmUp  *ProcessUsed `json:"warm_up,omitempty"`
	Compile *ProcessUsed `json:"compile,omitempty"`
	Run     *ProcessUsed `json:"run,omitempty"`
}

// A ProcessUsed is what one process took, with the children it waited for.
type ProcessUsed struct {
	Wall   float64 `json:"wall_s"`
	User   float64 `json:"user_s"`
	System float64 `json:"system_s"`
	Peak   int64   `json:"peak_bytes"` // resident, of the largest process
	Exit   int     `json:"exit_code"`  // negative: killed by that signal
	Signal string  `json:"signal,omitempty"`
	Killed string  `json:"killed,omitempty"` // why the runner killed it: "timeout", "out of time", "canceled"
}

// Versions names what judged, and what was judged.
type Versions struct {
	Runner     string       `json:"runner"`
	Python     string       `json:"python,omitempty"`
	Compiler   string       `json:"compiler,omitempty"`
	Image      string       `json:"image,omitempty"`   // as the job was told
	Payload    string       `json:"payload_sha256"`    // of its JSON as kbrun writes it, seed left out
	Submission string       `json:"submission_sha256"` // of the file the competitor sent, where it is known
	Files      []FileDigest `json:"files"`             // every file that was put in place
}

// A FileDigest is a file's name and the SHA-256 of its text, in hex.
type FileDigest struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// A DeviceReport is what the machine's accelerators report of themselves.
type DeviceReport struct {
	Source  string   `json:"source"` // "nvml", "nvidia-smi", "sysfs" or "none"
	Vendor  string   `json:"vendor,omitempty"`
	Driver  string   `json:"driver,omitempty"`
	Runtime string   `json:"runtime,omitempty"` // the newest CUDA the driver takes, "12.4"
	Faults  []string `json:"faults,omitempty"`  // what could not be asked, and what is wrong
	Devices []Device `json:"devices,omitempty"`

	Sampling []Sampling `json:"sampling,omitempty"` // per phase and device
}

// A Device is one GPU, partition of one, or TPU chip.
type Device struct {
	Index       int    `json:"index"`
	Name        string `json:"name,omitempty"`
	UUID        string `json:"uuid,omitempty"`
	PCI         string `json:"pci,omitempty"`  // "0000:3b:00.0"
	Node        string `json:"node,omitempty"` // "/dev/dri/renderD128"
	Arch        string `json:"arch,omitempty"` // "90", "gfx942"
	MemoryBytes uint64 `json:"memory_bytes,omitempty"`

	ECC           *ECC     `json:"ecc,omitempty"`
	ClockSM       int      `json:"clock_mhz,omitempty"`        // when asked
	ClockMemory   int      `json:"memory_clock_mhz,omitempty"` // when asked
	MaxClockSM    int      `json:"max_clock_mhz,omitempty"`
	MaxClockMem   int      `json:"max_memory_clock_mhz,omitempty"`
	Temperature   int      `json:"temperature_c,omitempty"`
	PowerW        float64  `json:"power_w,omitempty"`
	PowerLimitW   float64  `json:"power_limit_w,omitempty"`
	Throttle      []string `json:"throttle,omitempty"` // reasons that hold now
	ComputeMode   string   `json:"compute_mode,omitempty"`
	Persistence   *bool    `json:"persistence,omitempty"`
	MIG           *bool    `json:"mig,omitempty"`
	ProcessBefore []Holder `json:"processes_before,omitempty"`
	ProcessAfter  []Holder `json:"processes_after,omitempty"`
}

// An ECC is the state of a device's memory; nil counts could not be read.
type ECC struct {
	Enabled       bool    `json:"enabled"`
	Uncorrected   *uint64 `json:"uncorrected,omitempty"` // since the driver was loaded
	RemapPending  *bool   `json:"remap_pending,omitempty"`
	RemapFailed   *bool   `json:"remap_failed,omitempty"`
	RetirePending *bool   `json:"retire_pending,omitempty"`
}

// A Holder is a process that has a context on a device. The driver counts
// processes on the machine: inside a container the number means nothing.
type Holder struct {
	PID   int    `json:"pid"`
	Name  string `json:"name,omitempty"`
	Bytes uint64 `json:"bytes,omitempty"`
}

// A Sampling sums up one device while one phase's program ran.
type Sampling struct {
	Phase       string   `json:"phase"`
	Index       int      `json:"index"`
	Samples     int      `json:"samples"`
	ClockSM     Spread   `json:"clock_mhz"`
	ClockMemory Spread   `json:"memory_clock_mhz"`
	Temperature Spread   `json:"temperature_c"`
	PowerW      Spread   `json:"power_w"`
	Throttle    []Count  `json:"throttle,omitempty"`  // samples in which a reason held
	Seen        []Holder `json:"processes,omitempty"` // the program itself among them
}

// A Spread is the least, the mean and the most of the samples.
type Spread struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// A Count is how many samples showed a reason.
type Count struct {
	Reason  string `json:"reason"`
	Samples int    `json:"samples"`
}

// members returns the parts that are there, in the order they are written,
// cleaned like every other string of a result.
func (e *Evidence) members() (ordered, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	n, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	n.clean()
	var o ordered
	for i := range n.members {
		o = append(o, pair{n.members[i].name, &n.members[i].value})
	}
	return o, nil
}

// clean applies [text.Storable] to every string below n.
func (n *node) clean() {
	if n.kind == kindString {
		n.text = text.Storable(n.text)
	}
	for i := range n.list {
		n.list[i].clean()
	}
	for i := range n.members {
		n.members[i].name = text.Storable(n.members[i].name)
		n.members[i].value.clean()
	}
}

// evidenceKeys are the keys of Evidence.
var evidenceKeys = []string{
	"gpu_type", "queue", "timing", "device", "versions", "sandbox", "harness", "measurements", "explanation", "ambiguous",
	"shared_judge", "self_checked", "retained",
}

// evidence reads the parts that are there. A part of another form is somebody
// else's key of the same name, and is left out.
func evidence(root *node) (e Evidence) {
	for _, m := range root.members {
		if !slices.Contains(evidenceKeys, m.name) {
			continue
		}
		part, read := node{kind: kindObject, members: []member{m}}, e
		if json.Unmarshal([]byte(jsonNotation.text(&part)), &read) == nil {
			e = read
		}
	}
	return e
}
