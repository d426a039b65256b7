package pipelines

import "time"

// A CommandStep is one job as a definition wants it. How it is written for the
// vendor and platform of its row is the generator's business.
type CommandStep struct {
	Key, Label string
	Kind       string   // name of the kind that made it
	Command    []string // one line each, for /bin/sh -e
	On         GPUType  // the row whose agents take it; ServiceQueues have rows too

	// Bare steps run on the agent's host whatever the row's platform.
	Bare bool
	// Checkout keeps the repository for the job; without it there is none.
	Checkout bool
	// Secure steps run somebody's code: on the host kbrun uploads the result
	// by itself once that code is gone, for artifact_paths would let it replace
	// the file before the agent picks it up.
	Secure bool
	// First makes the command the first process of its container: it reaps what
	// it leaves and takes signals by itself.
	First bool

	Timeout time.Duration
	// Deadline says that the step tells kbrun in a container when to end.
	Deadline bool

	Env       []Var    // values that the step sets; seen in the uploaded pipeline
	Pass      []string // further variables of the build that a container gets, by name
	Secrets   []Secret // of steps on their machine that run no submission
	Artifacts []string // paths that the agent uploads at the end

	Retry    RetryClass
	Priority *int // nil: Buildkite's default, 0
	Group    string
	Limit    int // jobs of Group that run at once; 0 without a group

	DependsOn []string // keys
	// Tags are what a [Selection] may ask for: the kind, and of the row the
	// vendor, platform, isolation and name.
	Tags []string
	// Skip, when not empty, is why the step is not to run in this build.
	Skip string
	// Image replaces the row's; empty: the row's own.
	Image string

	Origins []Origin // where values come from, later ones beat earlier ones
}

// A Var is one variable with its value.
type Var struct{ Name, Value string }

// A Layer is where a value was decided. Later layers beat earlier ones.
type Layer string

// The layers, weakest first.
const (
	Product     Layer = "product"      // the same for everything kbgen writes
	ByVendor    Layer = "vendor"       // what the devices' maker needs
	ByRow       Layer = "row"          // the GPU type
	ByKind      Layer = "kind"         // the step kind
	ByPipeline  Layer = "pipeline"     // the pipeline
	CommandLine Layer = "command line" // flags and the build's variables
)

// An Origin says where the value at a path of a step was decided.
type Origin struct {
	Path  string // "timeout_in_minutes", "plugins.docker.image"; "" for the whole step
	Layer Layer
	Why   string // "H100_BK.Timeout"
}

// from notes where the value at path comes from.
func (s *CommandStep) from(path string, layer Layer, why string) {
	s.Origins = append(s.Origins, Origin{path, layer, why})
}
