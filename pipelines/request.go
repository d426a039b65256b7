package pipelines

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// A Request says what a build is for.
type Request struct {
	GPUs []GPUType // in this order; pipelines that need none ignore them

	// Image replaces the image of every docker and kubernetes row; empty means
	// the rows' own. It must be pinned, and rows of several vendors cannot
	// share one.
	Image string

	Run    Run  // the evaluation
	Secret *Run // a second one on the same GPU types; nil: none

	// Registry is the token with which pipeline image pushes; its zero: the machine
	// is logged in.
	Registry Secret

	// User names the person to whom the jobs are counted; empty: nobody.
	User string

	// Selection says which steps run.
	Selection Selection
	// Source is what made the build, as BUILDKITE_SOURCE says it: work that
	// nobody waits for yields to submissions.
	Source string

	// Relay makes pipeline bootstrap's step wait for its evaluation and show the
	// result as its own, for launchers that know one job.
	Relay bool
	// Version is the kbgen that pipeline bootstrap's step expects; empty: any.
	Version string

	// Notes say what the build asked for and does not get.
	Notes []Note

	// Static makes pipeline bootstrap evaluate in one step, for launchers that
	// look for the result in the first job of a build. The step serves every
	// build; kbrun refuses one that asks for another GPU type or queue.
	Static bool
}

// A Run is one evaluation that a build carries. Its payload is not here.
type Run struct {
	// ID is the run's id. Only needed with several GPU types, where each job
	// gets one of its own: the id, a dot, the GPU type.
	ID string
	// Derived says that no launcher gave the id: each job gets one of its own.
	Derived bool
	Mode    string // as Kernelbot names it; empty: unknown

	// PayloadChunks is the number of variables that carry the payload; 0 means
	// one, without a number.
	PayloadChunks int

	// Budget is how long the payload's phases may legally take in all, 0 when
	// nobody said. It becomes the step's timeout.
	Budget time.Duration
}

// maxBudget keeps a budget inside reason: a day.
const maxBudget = 24 * time.Hour

// maxRunID leaves room for the GPU type behind it: kbrun takes 200 characters.
const maxRunID = 139

// maxVersion bounds the name of a version: it stands in a command.
const maxVersion = 80

// Validate returns every fault of the request, joined.
func (r Request) Validate() error {
	var faults []error
	seen := map[string]bool{}
	for _, g := range r.GPUs {
		faults = append(faults, g.Validate())
		if g.Off != "" {
			faults = append(faults, &OffError{Name: g.Name, Reason: g.Off})
		}
		if seen[g.Name] {
			faults = append(faults, fmt.Errorf("GPU type %s is asked for twice", g.Name))
		}
		seen[g.Name] = true
	}
	if r.Image != "" {
		faults = append(faults, CheckImage(r.Image), r.oneVendor())
	}
	if r.Registry != (Secret{}) {
		faults = append(faults, r.Registry.Validate())
	}
	if r.Version != "" && !fits(r.Version, isVersion, maxVersion) {
		faults = append(faults, fmt.Errorf("expected version: got %.80q, want letters, digits, dots, - and +, at most %d", r.Version, maxVersion))
	}
	faults = append(faults, r.Selection.validate(), r.Run.validate("", len(r.GPUs)))
	if r.Secret != nil {
		faults = append(faults, r.Secret.validate("secret ", len(r.GPUs)))
		if r.Secret.ID != "" && r.Secret.ID == r.Run.ID {
			faults = append(faults, fmt.Errorf("secret run id: got %q, which is the public run's too, want one of its own", r.Secret.ID))
		}
	}
	if len(r.User) > 1000 {
		faults = append(faults, fmt.Errorf("user: got %d bytes, want 1000 at most", len(r.User)))
	}
	return errors.Join(faults...)
}

func (r Run) validate(which string, gpus int) error {
	var faults []error
	if r.PayloadChunks < 0 || r.PayloadChunks > schema.MaxChunks {
		faults = append(faults, fmt.Errorf("%spayload chunks: got %d, want 0 to %d", which, r.PayloadChunks, schema.MaxChunks))
	}
	if r.Budget < 0 || r.Budget > maxBudget {
		faults = append(faults, fmt.Errorf("%srun's time: got %s, want 0 to %s", which, r.Budget, maxBudget))
	}
	if err := CheckMode(r.Mode); err != nil {
		faults = append(faults, fmt.Errorf("%srun: %w", which, err))
	}
	if (gpus > 1 || r.Derived) && r.ID != "" && !fits(r.ID, isRunID, maxRunID) {
		faults = append(faults, fmt.Errorf("%srun id: got %.60q, want up to 139 letters, digits, dots, colons, dashes and underscores", which, r.ID))
	}
	return errors.Join(faults...)
}

// oneVendor refuses one image for several vendors' libraries.
func (r Request) oneVendor() error {
	var names []string
	seen := map[Vendor]bool{}
	for _, g := range r.GPUs {
		if g.Platform != Host && !seen[g.Vendor] {
			seen[g.Vendor] = true
			names = append(names, g.Name)
		}
	}
	if len(names) > 1 {
		return fmt.Errorf("image %q cannot serve GPU types of several vendors (%s)", r.Image, strings.Join(names, ", "))
	}
	return nil
}
