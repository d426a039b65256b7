package pipelines

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// A Kind is one sort of step. Its function turns a row into a [CommandStep]; it may
// not decide whether the step exists, which is the pipeline's business.
type Kind struct {
	Name  string `json:"name"`
	About string `json:"about" jsonschema:"one line"`

	// Paths are the files of this repository that a step of the kind is about,
	// for [Selection.ByChange]: patterns of package path, ** at the end for all
	// below, "!" in front to leave out. Nil: it is about none, and always runs.
	Paths []string `json:"-"`
}

// What image steps build, and what smoke and isolation steps try.
var (
	imagePaths = []string{"cmd/kbrun/**", "cmd/internal/**", "runner/**", "schema/**", "secrets/**", "verdict/**",
		"templates/runner/**", "templates/runner.go", "cmd/kbgen/image.go", "pipelines/images.go", "go.mod", "go.sum"}
	stepPaths = []string{"pipelines/**", "generator/**", "schema/pipeline/**"}
)

// Kinds lists the step kinds for people.
var Kinds = []Kind{
	{Name: "evaluate", About: "judge a submission: kbrun in a container, or on the host where there is none"},
	{Name: "secret", About: "the second evaluation of a build, with variables of its own"},
	{Name: "smoke", About: "show that a queue's machine starts jobs, sees its device and returns an artifact", Paths: stepPaths},
	{Name: "isolation", About: "try from inside a job what a submission must not be able to do", Paths: stepPaths},
	{Name: "build-image", About: "build a runner image and run kbrun in it", Paths: imagePaths},
	{Name: "bootstrap", About: "choose the GPU and upload the steps of the build"},
	{Name: "ci", About: "this repository's own tests and checks", Paths: []string{"**"}},
}

// judge replaces the shell by kbrun. No shell is left that holds the payload in
// its environment, signals reach kbrun itself, and in a container it is the
// first process, which nobody inside can kill.
const judge = "exec kbrun evaluate"

// evaluate judges the build's submission on g.
func evaluate(g GPUType, r Request) CommandStep {
	s := evaluation(g, r, r.Run, "evaluate", schema.EnvPayload)
	s.Key, s.Label = "evaluate-"+g.Queue, "Evaluate on "+g.Name
	s.Command = []string{judge}
	s.Pass = append(s.Pass, schema.EnvRunID, schema.EnvMode)
	s.Pass = append(s.Pass, payloadNames(schema.EnvPayload, r.Run.PayloadChunks)...)
	if r.Run.PayloadChunks == 0 {
		s.Pass = append(s.Pass, "SUBMISSION_PAYLOAD") // what older launchers call it
	}
	return s
}

// secret judges it once more, with the payload and id that the build carries
// as KERNELBOT_SECRET_*.
func secret(g GPUType, r Request) CommandStep {
	s := evaluation(g, r, *r.Secret, "secret", schema.SecretEnv(schema.EnvPayload))
	s.Key, s.Label = "evaluate-"+g.Queue+"-secret", "Evaluate on "+g.Name+" (secret run)"
	s.Command = []string{judge + " --secret"}
	s.Pass = append(append(s.Pass, schema.SecretEnv(schema.EnvRunID)), payloadNames(schema.SecretEnv(schema.EnvPayload), r.Secret.PayloadChunks)...)
	return s
}

// evaluation is what every run of a submission has.
func evaluation(g GPUType, r Request, run Run, kind, payload string) CommandStep {
	s := CommandStep{
		Kind: kind, On: g, Secure: true, First: true, Deadline: true, Image: r.Image,
		Timeout:   StepTimeout(g, run.Budget),
		Env:       append(place(g), requirements(g, r)...),
		Pass:      []string{schema.EnvSandboxRead}, // directories of this machine's data, set by the node
		Retry:     RetryMachine,
		Artifacts: []string{"result.json"},
	}
	if r.Static {
		where, pass := placeStatic(g)
		s.Env, s.Pass = append(where, requirements(g, r)...), append(s.Pass, pass...)
	}
	s.Env = append(s.Env, Var{schema.EnvUntrusted, "true"})
	s.from("env."+schema.EnvGPUName, ByRow, g.Name+".Device.Names")
	s.from("env."+schema.EnvGPUArch, ByRow, g.Name+".Device.Arch")
	s.from("env."+schema.EnvGPUMemoryGiB, ByRow, g.Name+".Device.MemoryGiB")
	switch {
	case run.Budget == 0:
		s.from("timeout_in_minutes", ByRow, g.Name+".Timeout")
	case s.Timeout == g.Timeout:
		s.from("timeout_in_minutes", ByRow, fmt.Sprintf("%s.Timeout, which bounds the payload's %s and the margins", g.Name, run.Budget))
	default:
		s.from("timeout_in_minutes", CommandLine, fmt.Sprintf("the payload's limits (%s) and the margins, below %s.Timeout", run.Budget, g.Name))
	}
	if p, ok := Priority(run.Mode); ok {
		s.Priority = &p
		s.from("priority", ByKind, "mode "+run.Mode)
	}
	if r.User != "" {
		s.Group, s.Limit = userGroup(r.User), userJobs
		for _, path := range []string{"concurrency", "concurrency_group", "concurrency_method"} {
			s.from(path, CommandLine, "the build's user; policy: each person's jobs are counted")
		}
	}
	if (len(r.GPUs) > 1 || run.Derived) && run.ID != "" {
		name := strings.TrimSuffix(payload, "PAYLOAD") + "RUN_ID"
		s.Env = append(s.Env, Var{name, run.ID + "." + g.Name})
		why := "the build's run id; several GPU types have one result each"
		if run.Derived {
			why = "derived from the build, whose launcher gave no run id"
		}
		s.from("env."+name, CommandLine, why)
	}
	return s
}

// place tells a job which row it runs for. A step's env beats the build's: in
// a build for several GPU types each job still learns its own.
func place(g GPUType) []Var {
	return []Var{{schema.EnvGPU, g.Name}, {schema.EnvQueue, g.Queue}}
}

// placeStatic tells it to a job whose step serves every build. What the build
// asks for keeps its names, and kbrun compares the two: launchers may send any
// build there.
func placeStatic(g GPUType) (env []Var, pass []string) {
	return []Var{{schema.EnvStepGPU, g.Name}, {schema.EnvStepQueue, g.Queue}},
		append([]string{schema.EnvGPU, schema.EnvQueue, schema.EnvOldQueue}, schema.BuildVars...)
}

// requirements tells kbrun what the machine must have, so that a missing device is
// the machine's fault, and what it runs in, for the record. What is the same
// everywhere is said, too: the build's own environment must not decide it.
func requirements(g GPUType, r Request) []Var {
	env := []Var{{schema.EnvGPUVendor, string(g.Vendor)}}
	if g.Vendor != NoGPU {
		env = append(env, Var{schema.EnvGPUCount, strconv.Itoa(g.GPUs)},
			Var{schema.EnvGPUName, strings.Join(g.Device.Names, schema.GPUNameSeparator)},
			Var{schema.EnvGPUArch, g.Device.Arch}, Var{schema.EnvGPUMemoryGiB, strconv.Itoa(g.Device.MemoryGiB)})
	}
	env = append(env, Var{schema.EnvSandbox, g.LeastSandbox()})
	if image := cmp.Or(r.Image, g.Image); image != "" && g.Platform != Host {
		env = append(env, Var{schema.EnvImage, image})
	}
	return env
}

// payloadNames lists the variables that carry a payload.
func payloadNames(name string, chunks int) []string {
	if chunks == 0 {
		return []string{name}
	}
	names := []string{name + "_CHUNKS", name + "_SHA256"}
	for i := range chunks {
		names = append(names, fmt.Sprintf("%s_%d", name, i))
	}
	return names
}

// The scripts of kinds that are more than one command. They are for /bin/sh,
// need no more than the runner image has, and read no variable but those that
// their step passes on.
var (
	//go:embed scripts/smoke.sh
	smokeScript string
	//go:embed scripts/isolation.sh
	isolationScript string
)

// smoke shows that a job on g starts, sees its device, and returns a file.
func smoke(g GPUType, r Request) CommandStep {
	return trial(g, r, "smoke", "Smoke test of "+g.Name, smokeScript)
}

// isolation tries what a submission must not be able to do.
func isolation(g GPUType, r Request) CommandStep {
	s := trial(g, r, "isolation", "Isolation of "+g.Name, isolationScript)
	s.Env = append(s.Env, Var{schema.EnvCPUs, fmt.Sprint(g.CPUs)}, Var{schema.EnvMemoryGiB, fmt.Sprint(g.MemoryGiB)})
	return s
}

// trial runs a script in what a job on g gets, which leaves KIND.txt.
func trial(g GPUType, r Request, kind, label, script string) CommandStep {
	s := CommandStep{
		Key: kind + "-" + g.Queue, Label: label, Kind: kind,
		Command: lines(script), On: g, Image: r.Image,
		Timeout:   minTimeout,
		Env:       append(place(g), Var{schema.EnvVendor, string(g.Vendor)}, Var{schema.EnvGPUs, fmt.Sprint(g.GPUs)}),
		Artifacts: []string{kind + ".txt"},
		Retry:     RetryLost,
	}
	s.from("timeout_in_minutes", ByKind, "the shortest there is")
	return s
}

// buildImage builds one runner image and runs kbrun in it.
func buildImage(i image, r Request) CommandStep {
	host, _ := ServiceQueues.Lookup("IMAGES") // a test holds it there
	s := CommandStep{
		Key: "image-" + i.kind, Label: "Image " + i.kind, Kind: "build-image",
		Command: []string{
			"rm -rf image",
			"mkdir image",
			"CGO_ENABLED=0 go build -trimpath -o image/kbrun ./cmd/kbrun",
			"kbgen image " + i.kind + " > image/Dockerfile",
			`base=$(kbgen image ` + i.kind + ` --base)`,
			`docker pull "$base"`,
			`digest=$(docker image inspect --format "{{index .RepoDigests 0}}" "$base")`,
			`docker build --build-arg "BASE_DIGEST=${digest#*@}" --tag ` + i.ref + ` image`,
			"docker run --rm --network none " + i.ref + " kbrun --version",
			"docker push " + i.ref,
		},
		On: host, Bare: true, Checkout: true, Timeout: host.Timeout, Retry: RetryLost,
	}
	if i.kind == "cuda" {
		s.Command = slices.Insert(s.Command, 3, "CGO_ENABLED=1 go build -trimpath -o image/kbrun-nvml ./cmd/kbrun")
	}
	s.from("timeout_in_minutes", ByRow, host.Name+".Timeout")
	if r.Registry != (Secret{}) {
		s.Secrets = []Secret{r.Registry}
		s.from("secrets", CommandLine, "--registry-secret")
		s.Command = slices.Insert(s.Command, len(s.Command)-1, logIn(r.Registry.Name, i.ref)...)
	}
	return s
}

// logIn logs docker in to an image's registry, for this job alone: the file in
// which docker keeps the token goes with it. The value is in no process's arguments.
func logIn(secret, ref string) []string {
	registry, path, _ := strings.Cut(ref, "/")
	owner, _, _ := strings.Cut(path, "/")
	return []string{
		"DOCKER_CONFIG=$(mktemp -d)",
		"export DOCKER_CONFIG",
		`trap 'rm -rf "$DOCKER_CONFIG"' EXIT`,
		`printf %s "$` + secret + `" | docker login ` + registry + " --username " + owner + " --password-stdin",
	}
}

// bootstrap chooses the GPU and uploads the steps of the build.
func bootstrap(r Request) CommandStep {
	host, _ := ServiceQueues.Lookup("BOOTSTRAP")
	s := CommandStep{
		Key: "bootstrap", Label: "Choose the GPU", Kind: "bootstrap",
		On: host, Bare: true, Timeout: host.Timeout, Retry: RetryLost,
	}
	s.from("timeout_in_minutes", ByRow, host.Name+".Timeout")
	command := "kbgen upload evaluate"
	if r.Relay {
		command += " --relay"
		s.Label, s.Timeout = "Choose the GPU, show its result", maxTimeout
		s.from("timeout_in_minutes", CommandLine, "--relay: it waits for the evaluation, and the evaluation for its queue")
	}
	if r.Version != "" {
		command += " --expect-version " + r.Version
	}
	s.Command = []string{command}
	return s
}

// ci runs this repository's tests and checks.
func ci(g GPUType) CommandStep {
	s := CommandStep{
		Key: "ci", Label: "Tests and checks", Kind: "ci",
		Command: []string{".ci/run"},
		On:      g, Bare: true, Checkout: true, Timeout: ciTimeout, Retry: RetryLost,
	}
	s.from("timeout_in_minutes", ByKind, "tests with the race detector, on two cores")
	return s
}

func lines(script string) []string { return strings.Split(strings.TrimSuffix(script, "\n"), "\n") }
