package generator

import (
	"fmt"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/pipelines"
)

// A document is what `buildkite-agent pipeline upload` reads. Fields are
// printed in the order in which they stand here.
type document struct {
	Steps []commandStep `yaml:"steps"`
}

// A commandStep is one command step, in the strict subset that kbgen writes:
// key, label and command always, numbers as numbers, nothing null.
type commandStep struct {
	Key              string            `yaml:"key"`
	Label            string            `yaml:"label"`
	Command          string            `yaml:"command"`
	Agents           agents            `yaml:"agents"`
	Env              map[string]string `yaml:"env,omitempty"` // printed sorted
	Checkout         *checkout         `yaml:"checkout,omitempty"`
	TimeoutInMinutes int               `yaml:"timeout_in_minutes"`
	ArtifactPaths    []string          `yaml:"artifact_paths,omitempty"`
	Retry            retry             `yaml:"retry"`
	Plugins          []plugin          `yaml:"plugins,omitempty"`
}

type agents struct {
	Queue string `yaml:"queue"`
}

type checkout struct {
	Skip bool `yaml:"skip"`
}

type retry struct {
	Automatic []retryRule `yaml:"automatic"`
}

// A retryRule matches when all that it names match; an omitted field matches
// anything. Limit counts this rule's retries only.
type retryRule struct {
	ExitStatus   *int   `yaml:"exit_status,omitempty"`
	SignalReason string `yaml:"signal_reason,omitempty"`
	Limit        int    `yaml:"limit"`
}

// A plugin is printed as a list item with one key, its pinned source.
type plugin struct {
	Source string
	Config any
}

func (p plugin) MarshalYAML() (any, error) {
	return map[string]any{p.Source: p.Config}, nil
}

// exitTempFail is kbrun's exit status for a fault of the machine (sysexits.h,
// EX_TEMPFAIL). Every verdict on a submission is exit status 0.
const exitTempFail = 75

// infraRetry repeats what the infrastructure broke, and nothing else.
//
//   - A lost agent is Buildkite's own verdict: exit status -1 and no signal
//     reason. The rule names both, for -1 alone also matches jobs that were
//     cancelled or timed out (cancel), refused (agent_refused,
//     signature_rejected), or whose environment is too large for exec or whose
//     container the docker daemon refused (process_run_error): they would fail
//     the same way again.
//   - A stopped agent says agent_stop. What exit status comes with it differs
//     between agents, so none is named.
//   - 75 is kbrun asking for another try.
//
// Source: buildkite.com/docs/pipelines/configure/retry.
func infraRetry() retry {
	lost, tempFail := -1, exitTempFail
	return retry{Automatic: []retryRule{
		{ExitStatus: &lost, SignalReason: "none", Limit: 1},
		{SignalReason: "agent_stop", Limit: 1},
		{ExitStatus: &tempFail, Limit: 2},
	}}
}

// startMargin is kept of a docker step's timeout for what comes before kbrun
// (cloning the plugin, pulling an image that the machine lacks) and after it.
// kbrun must end first: a container that outlives a cancelled job keeps the
// GPU, and leaves no result. On a host kbrun reads the timeout by itself.
const startMargin = 2 * time.Minute

// evaluateStep builds the step that evaluates one submission on g.
func evaluateStep(g pipelines.GPUType, r Request) (commandStep, error) {
	step := commandStep{
		Key:     "evaluate-" + g.Queue,
		Label:   "Evaluate on " + g.Name,
		Command: "kbrun evaluate",
		Agents:  agents{Queue: g.Queue},
		// A step's env beats the build's: in a build for several GPU types
		// each job still learns its own.
		Env:              map[string]string{"KERNELBOT_GPU": g.Name, "KERNELBOT_QUEUE": g.Queue},
		TimeoutInMinutes: int(g.Timeout.Minutes()),
		Retry:            infraRetry(),
	}
	if g.Platform == pipelines.Host {
		// kbrun needs nothing from the repository, and uploads result.json by
		// itself once the submission's processes are gone: artifact_paths
		// would let them replace the file before the agent picks it up.
		step.Checkout = &checkout{Skip: true}
		return step, nil
	}
	// Not checkout.skip here: it would also skip the plugin's checkout hook,
	// which makes the fresh directory that the job works in.
	config, err := dockerConfig(g, r)
	if err != nil {
		return commandStep{}, err
	}
	step.Env["KERNELBOT_DEADLINE"] = fmt.Sprintf("%dm", int((g.Timeout - startMargin).Minutes()))
	step.Plugins = []plugin{{Source: dockerSource, Config: config}}
	step.ArtifactPaths = []string{"result.json"}
	return step, nil
}

var _ yaml.Marshaler = plugin{}
