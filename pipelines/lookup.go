package pipelines

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/near"
)

// An UnknownError says that no row has the name or queue asked for. Have lists
// what there is, in table order; Nearest is the one most like Got.
type UnknownError struct {
	What    string // "GPU type", "queue", "pipeline" …
	Got     string
	Nearest string // "" when none is near
	Have    []string
}

// maxNames is how many names an error lists.
const maxNames = 20

func (e *UnknownError) Error() string {
	if len(e.Have) == 0 {
		return fmt.Sprintf("unknown %s %q, the table is empty", e.What, e.Got)
	}
	have := fmt.Sprintf("%q", e.Have)
	if n := len(e.Have); n > maxNames {
		have = fmt.Sprintf("%q and %d more", e.Have[:maxNames], n-maxNames)
	}
	nearest := ""
	if e.Nearest != "" {
		nearest = ", nearest is " + e.Nearest
	}
	return fmt.Sprintf("unknown %s %q%s, have %s", e.What, e.Got, nearest, have)
}

// An OffError says that a row is switched off, and why.
type OffError struct {
	Name   string
	Reason string
}

func (e *OffError) Error() string {
	return fmt.Sprintf("GPU type %s is switched off: %s", e.Name, e.Reason)
}

// Lookup returns the row called name, in any case: Kernelbot's own look-up
// ignores case too.
//
// Errors: [UnknownError], or [OffError] beside the row.
func (t Table) Lookup(name string) (GPUType, error) {
	for _, g := range t {
		if strings.EqualFold(g.Name, name) {
			return g, g.available()
		}
	}
	return GPUType{}, Unknown("GPU type", name, t.Names())
}

// LookupQueue returns the row that the queue serves. Queues are compared
// exactly, as Buildkite does. A vendor's own queue, in the form of the vendors'
// guide ("nvidia-h100-0": lender, GPU type, index), means the row of its GPU
// type, which is returned with that queue in the place of its own.
//
// Errors: [UnknownError], [LenderError], or [OffError] beside the row.
func (t Table) LookupQueue(queue string) (GPUType, error) {
	for _, g := range t {
		if g.Queue == queue {
			return g, g.available()
		}
	}
	g, err := t.lookupOwnQueue(queue)
	if err == nil && g.Name == "" {
		err = Unknown("queue", queue, namesOf(t, func(g GPUType) string { return g.Queue }))
	}
	if err != nil {
		return GPUType{}, err
	}
	return g, g.available()
}

// A LenderError says that a queue names a maker of GPUs as the lender of
// somebody else's.
type LenderError struct {
	Queue, Lender string
	GPUType       GPUType
}

func (e *LenderError) Error() string {
	return fmt.Sprintf("queue %q: %s makes no GPU for %s, whose maker is %s", e.Queue, e.Lender, e.GPUType.Name, e.GPUType.Vendor)
}

// lookupOwnQueue finds the row of a queue {vendor}-{gpu_type}-{index}; no row
// when the queue has not that form. The index may be missing, as in what
// Kernelbot's first launcher sends. Of several GPU types that the name ends with,
// the longest is meant: "acme-h100-1g10gb-0" is for slices.
func (t Table) lookupOwnQueue(queue string) (found GPUType, err error) {
	if !fits(queue, isQueue, maxQueue) {
		return found, nil
	}
	name := queue
	if i := strings.LastIndexByte(queue, '-'); i >= 0 && made(queue[i+1:], digits) {
		name = queue[:i]
	}
	longest := 0
	for _, g := range t {
		for _, kind := range []string{schema.QueueGPUType(g.Name), g.Queue} {
			lender, ok := strings.CutSuffix(name, "-"+kind)
			if name == kind && strings.HasPrefix(kind, string(g.Vendor)+"-") {
				lender, ok = string(g.Vendor), true // "google-tpu-0": the row's own queue names both
			}
			if !ok || lender == "" || len(kind) <= longest {
				continue
			}
			longest, found, err = len(kind), g, nil
			if maker := Vendor(lender); t.makes(maker) && g.Vendor != NoGPU && maker != g.Vendor {
				err = &LenderError{queue, lender, g}
			}
		}
	}
	found.Queue = queue
	return found, err
}

// makes reports whether some row's GPU is of that maker.
func (t Table) makes(v Vendor) bool {
	return v != NoGPU && slices.ContainsFunc(t, func(g GPUType) bool { return g.Vendor == v })
}

// Names lists the names of all rows, those switched off included.
func (t Table) Names() []string { return namesOf(t, func(g GPUType) string { return g.Name }) }

// Available returns the rows that are not switched off.
func (t Table) Available() Table {
	return slices.DeleteFunc(slices.Clone(t), func(g GPUType) bool { return g.Off != "" })
}

// On returns the rows as if none were switched off, to render what a vendor
// would get.
func (t Table) On() Table {
	on := slices.Clone(t)
	for i := range on {
		on[i].Off = ""
	}
	return on
}

func (g GPUType) available() error {
	if g.Off != "" {
		return &OffError{Name: g.Name, Reason: g.Off}
	}
	return nil
}

// Unknown returns the error for a name that none of have is.
func Unknown(what, got string, have []string) error {
	return &UnknownError{What: what, Got: got, Nearest: near.Name(got, have), Have: have}
}
