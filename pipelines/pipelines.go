package pipelines

import (
	"errors"
	"fmt"
	"time"
)

// A Pipeline is a name for kinds on rows. It is the only place where it is
// decided whether a step exists.
type Pipeline struct {
	Name  string `json:"name"`
	About string `json:"about" jsonschema:"one line"`

	// NeedsGPUs says that a request must name the GPU types.
	NeedsGPUs bool `json:"-"`
	// Serves tells which rows the pipeline is for; nil: every row.
	Serves func(GPUType) bool `json:"-"`
	// Why says what a row lacks that Serves refuses.
	Why string `json:"-"`
	// Comment stands at the top of the document, one line each, without #.
	Comment []string `json:"-"`

	steps func(Request) []CommandStep
}

// ciTimeout bounds this repository's own tests.
const ciTimeout = 60 * time.Minute

// Pipelines lists every pipeline, in the order in which they are printed.
var Pipelines = []Pipeline{
	{Name: "evaluate", About: "judge a submission on each GPU type", NeedsGPUs: true,
		steps: func(r Request) []CommandStep {
			var all []CommandStep
			for _, g := range r.GPUs {
				all = append(all, evaluate(g, r))
				if r.Secret != nil {
					all = append(all, secret(g, r))
				}
			}
			return all
		}},
	{Name: "smoke", About: "show that queues start jobs, see their devices and return artifacts", NeedsGPUs: true,
		steps: each(smoke)},
	{Name: "isolation", About: "try from inside a job what a submission must not be able to do", NeedsGPUs: true,
		Serves: func(g GPUType) bool { return g.Platform == Docker }, Why: "runs no docker, which is what is tried",
		steps: each(isolation)},
	{Name: "image", About: "build the runner images, then smoke-test them on the GPU types given",
		Serves: contained, Why: "uses no image",
		steps: imageSteps},
	{Name: "bootstrap", About: "the first step of every build, to paste into the pipeline's settings",
		Comment: bootstrapComment,
		steps: func(r Request) []CommandStep {
			if !r.Static {
				return []CommandStep{bootstrap(r)}
			}
			return each(evaluate)(r)
		}},
	{Name: "ci", About: "this repository's own tests and checks",
		steps: func(Request) []CommandStep {
			g, _ := Fleet.LookupQueue("cpu")
			return []CommandStep{ci(g)}
		}},
}

var bootstrapComment = []string{
	"The first step of every evaluation build: paste it into the pipeline's",
	"settings at Buildkite. It runs on a small machine without a GPU, on queue",
	`"bootstrap", and uploads the step for the GPU type that the build asks for`,
	"in KERNELBOT_GPU (or the one that KERNELBOT_QUEUE serves).",
	"",
	"A retry is safe: had the lost job uploaded its steps already, their keys",
	"would be taken and the second upload refused.",
}

func each(kind func(GPUType, Request) CommandStep) func(Request) []CommandStep {
	return func(r Request) []CommandStep {
		var all []CommandStep
		for _, g := range r.GPUs {
			all = append(all, kind(g, r))
		}
		return all
	}
}

func contained(g GPUType) bool { return g.Platform != Host }

// imageSteps builds every image, and smoke-tests it where a GPU type runs it.
func imageSteps(r Request) []CommandStep {
	var all []CommandStep
	for _, i := range images {
		build := buildImage(i, r)
		all = append(all, build)
		for _, g := range r.GPUs {
			if g.Image == i.ref {
				s := smoke(g, r)
				s.DependsOn = []string{build.Key}
				s.from("depends_on", ByPipeline, "image")
				all = append(all, s)
			}
		}
	}
	return all
}

// Find returns the pipeline called name.
//
// Error: [UnknownError].
func Find(name string) (Pipeline, error) {
	for _, p := range Pipelines {
		if p.Name == name {
			return p, nil
		}
	}
	return Pipeline{}, Unknown("pipeline", name, Names())
}

// Names lists the names of all pipelines.
func Names() []string { return namesOf(Pipelines, func(p Pipeline) string { return p.Name }) }

func namesOf[T any](list []T, name func(T) string) []string {
	names := make([]string, len(list))
	for i, item := range list {
		names[i] = name(item)
	}
	return names
}

// Steps returns the steps of p for r, at least one.
//
// Errors: every fault of the request, joined.
func (p Pipeline) Steps(r Request) ([]CommandStep, error) {
	faults := []error{r.Validate()}
	if p.NeedsGPUs && len(r.GPUs) == 0 {
		faults = append(faults, errors.New("nothing to render: no GPU type given"))
	}
	for _, g := range r.GPUs {
		if p.Serves != nil && !p.Serves(g) {
			faults = append(faults, fmt.Errorf("GPU type %s %s: it has no place in pipeline %s", g.Name, p.Why, p.Name))
		}
	}
	if r.Static && (p.Name != "bootstrap" || len(r.GPUs) != 1 || r.Secret != nil) {
		faults = append(faults, errors.New("static is for pipeline bootstrap with one GPU type and one run"))
	}
	if r.Registry != (Secret{}) && p.Name != "image" {
		faults = append(faults, errors.New("a registry's secret is for pipeline image"))
	}
	if r.Relay && (r.Static || p.Name != "bootstrap" && p.Name != "evaluate") {
		faults = append(faults, errors.New("relay is for pipelines bootstrap and evaluate, and not for a static one, whose first job judges"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	steps := p.steps(r)
	for i := range steps {
		steps[i].note(r)
		steps[i].tag()
		steps[i].prioritize(r.Source)
	}
	return steps, r.Selection.apply(steps)
}

// note adds the origins that every step of a pipeline has.
func (s *CommandStep) note(r Request) {
	own := s.Origins
	s.Origins = nil
	s.from("", ByKind, s.Kind)
	s.from("agents", ByRow, s.On.Name+".Queue")
	s.from("retry", ByKind, "retry class "+string(s.Retry))
	s.from("env.KERNELBOT_GPU", ByRow, s.On.Name)
	s.from("env.KERNELBOT_QUEUE", ByRow, s.On.Name+".Queue")
	s.from("env.KERNELBOT_STEP_GPU", ByRow, s.On.Name)
	s.from("env.KERNELBOT_STEP_QUEUE", ByRow, s.On.Name+".Queue")
	s.from("env.KERNELBOT_DEADLINE", Product, "the timeout less what starts before kbrun")
	s.Origins = append(s.Origins, own...)
	for _, path := range []string{"image", "plugins.docker.image"} {
		if r.Image != "" {
			s.from(path, CommandLine, "--image")
		} else {
			s.from(path, ByRow, s.On.Name+".Image")
		}
	}
}
