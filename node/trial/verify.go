// Package trial proves a machine by trying it: in containers that it starts itself,
// with jobs of a stand-in for Buildkite, and through Buildkite. It knows what kbgen
// writes for a slot; it decides nothing about real jobs.
package trial

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/generator"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/apply"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/drain"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/templates"
)

// verifyDir holds the files of a verification, in /run, so that a reboot ends it.
const verifyDir = node.RunDir + "-verify"

// Verify proves the machine with jobs: the slots' own agents take the steps that
// kbgen writes, from a stand-in for Buildkite on this machine. It returns how many
// of the slots were tried.
func Verify(ctx context.Context, config *node.Config, slots []*node.Slot, log func(format string, args ...any)) (results []doctor.Result, tried int, err error) {
	pins, err := node.ReadPins("/")
	if err != nil {
		return nil, 0, err
	}
	program, err := kblocal()
	if err != nil {
		return nil, 0, err
	}
	unlock, err := (&apply.Machine{Root: "/"}).Lock("verify")
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	v := &verification{config: config, log: log, program: program}
	if v.slots, results = provable("/", slots, pins); len(v.slots) == 0 {
		return results, 0, nil
	}
	proved, err := v.run(ctx)
	return append(results, proved...), len(v.slots), err
}

// provable are the slots whose agents start, and a result for each of the others:
// nobody would come for its jobs.
func provable(root string, slots []*node.Slot, pins *node.Pins) (can []*node.Slot, cannot []doctor.Result) {
	for _, s := range slots {
		pinned := slices.ContainsFunc(s.Images, func(ref string) bool { return pins.Images[ref].ID != "" })
		if _, err := os.Stat(filepath.Join(root, s.Paused())); err == nil {
			cannot = append(cannot, doctor.Result{Code: "paused", Slot: s.Name, State: doctor.Skipped, Text: "not tried, for it takes no jobs", Fix: "kbnode resume " + s.Name})
		} else if s.Platform == "docker" && !pinned {
			cannot = append(cannot, doctor.Result{Code: "image", Slot: s.Name, State: doctor.Failure, Text: "none of its images is pinned: every step would be refused", Fix: "kbnode image update --all"})
		} else {
			can = append(can, s)
		}
	}
	return can, cannot
}

// A verification is one run of verify.
type verification struct {
	config *node.Config
	slots  []*node.Slot
	log    func(format string, args ...any)

	program   string // kblocal
	server    *standIn
	pipelines map[string]string // files by the stand-in's names
	trials    []*slotTrial
	results   []doctor.Result
}

// run drains the slots, turns their agents to a stand-in, has each take its jobs,
// all at once, and turns them back, whatever has happened.
func (v *verification) run(ctx context.Context) (results []doctor.Result, err error) {
	v.log("draining %d slots", len(v.slots))
	defer func() { err = errors.Join(err, v.restore(context.WithoutCancel(ctx))) }()
	if err := drain.Agents(ctx, v.slots, "stop"); err != nil {
		return nil, err
	}
	v.results = append(v.results, Containers(ctx, v.config, v.slots)...)
	v.log("proving the isolated harness on GPUs")
	v.results = append(v.results, proofs(ctx, v.config, v.slots)...)
	if err := errors.Join(os.RemoveAll(verifyDir), os.MkdirAll(verifyDir, 0o700)); err != nil { // of one that was ended by force
		return nil, err
	}
	for _, s := range v.slots {
		v.trials = append(v.trials, &slotTrial{findings: findings{slot: s, fix: "journalctl -u " + s.Unit()}, v: v})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := v.divert(ctx, cancel); err != nil {
		return nil, err
	}
	v.log("running jobs on %d slots at once", len(v.slots))
	var wait sync.WaitGroup
	for _, t := range v.trials {
		wait.Go(func() { t.run(ctx) })
	}
	wait.Wait()
	for _, t := range v.trials {
		v.results = append(v.results, t.results...)
	}
	return v.results, nil
}

// divert starts the stand-in and the slots' agents on it. It calls gone when the
// stand-in ends.
func (v *verification) divert(ctx context.Context, gone func()) (err error) {
	v.pipelines = map[string]string{}
	for _, t := range v.trials {
		names := []string{"evaluate"}
		if t.slot.Platform == "docker" {
			names = append(names, "isolation")
		}
		for _, name := range names {
			steps, err := t.steps(name)
			if err != nil {
				t.failed("job-"+name, "%v", err)
				continue
			}
			file := filepath.Join(verifyDir, t.slug(name)+".yml")
			if err := os.WriteFile(file, []byte(steps), 0o600); err != nil {
				return err
			}
			v.pipelines[t.slug(name)] = file
		}
	}
	if v.server, err = startStandIn(ctx, v.program, v.config.Agent.Path, filepath.Join(verifyDir, "stand-in"), v.pipelines, gone); err != nil {
		return err
	}
	token := filepath.Join(verifyDir, "token")
	if err := os.WriteFile(token, []byte(v.server.agentToken+"\n"), 0o600); err != nil {
		return err
	}
	dropIn := "# kbnode verify: removed when it ends\n[Service]\n" +
		templates.TokenInput(token) + "\n" +
		"Environment=BUILDKITE_AGENT_ENDPOINT=" + v.server.url + "v3\n"
	for _, s := range v.slots { // one for all would turn away whichever else starts again meanwhile
		name := doctor.VerifyDropIn(s)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(dropIn), 0o644)); err != nil {
			return err
		}
	}
	if _, err := system.Run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	if err := drain.Agents(ctx, v.slots, "start"); err != nil {
		return fmt.Errorf("the agents do not start: %w; kbnode doctor says why", err)
	}
	if err := v.server.awaitAgents(ctx, len(v.slots)); err != nil {
		return fmt.Errorf("%w; journalctl -u 'kbnode-agent@*'", err)
	}
	return nil
}

// restoreLimit bounds each step of the way back.
const restoreLimit = 5 * time.Minute

// restore turns the agents back to where their config says, and starts them. One
// that still has a job starts when that has ended.
func (v *verification) restore(ctx context.Context) error {
	var errs []error
	step := func(what func(context.Context) error) bool {
		ctx, cancel := context.WithTimeout(ctx, restoreLimit)
		defer cancel()
		err := what(ctx)
		errs = append(errs, err)
		return err == nil
	}
	start := []string{"start", "--no-block"}
	if v.server != nil {
		if step(func(ctx context.Context) error { return drain.Agents(ctx, v.slots, "stop") }) {
			start = start[:1]
		}
		step(func(ctx context.Context) error { _, err := dropVerify(ctx, v.slots); return err })
		step(v.server.close)
		step(func(context.Context) error { return os.RemoveAll(verifyDir) })
	}
	step(func(ctx context.Context) error { return drain.Agents(ctx, v.slots, start...) })
	return errors.Join(errs...)
}

// dropVerify has systemd forget that agents were turned away, and returns whose
// were.
func dropVerify(ctx context.Context, slots []*node.Slot) (away []*node.Slot, err error) {
	var errs []error
	for _, s := range slots {
		name := doctor.VerifyDropIn(s)
		switch err := os.Remove(name); {
		case err == nil:
			away = append(away, s)
			_ = os.Remove(filepath.Dir(name)) // unless somebody else has something there
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	if len(away) > 0 {
		_, err := system.Run(ctx, "systemctl", "daemon-reload")
		errs = append(errs, err)
	}
	return away, errors.Join(errs...)
}

// Restore turns back the agents that a verify left turned away when it was ended
// by force. One that runs is left alone.
func Restore(ctx context.Context, m *apply.Machine) error {
	config, err := node.ReadConfig(m.Root)
	if m.Root != "/" || err != nil {
		return nil // nothing was set up
	}
	unlock, err := m.Lock("apply")
	if err != nil {
		return err
	}
	defer unlock()
	away, err := dropVerify(ctx, config.Slots)
	if err != nil || len(away) == 0 {
		return err
	}
	return drain.Agents(ctx, away, "try-restart", "--no-block")
}

// A slotTrial is one slot's jobs.
type slotTrial struct {
	findings
	v *verification
}

// findings are what is found of one slot.
type findings struct {
	slot    *node.Slot
	fix     string // of a failure
	results []doctor.Result
}

func (f *findings) passed(code, format string, args ...any) {
	f.add(code, doctor.OK, "", format, args...)
}

func (f *findings) failed(code, format string, args ...any) {
	f.add(code, doctor.Failure, f.fix, format, args...)
}

func (f *findings) add(code string, state doctor.State, fix, format string, args ...any) {
	f.results = append(f.results, doctor.Result{Code: code, Slot: f.slot.Name, State: state, Text: text.Line(fmt.Sprintf(format, args...), 400), Fix: fix})
}

// run has the slot judge a right and a wrong submission, and, where its jobs are
// containers, try what they must not be able to do.
func (t *slotTrial) run(ctx context.Context) {
	if t.slot.Platform == "docker" {
		switch b := t.build(ctx, "isolation", ""); {
		case b == nil:
		case b.job.State != "passed":
			t.failed("job-isolation", "kbgen's isolation step ended %s: %s", b.job.State, b.faults(ctx))
		default:
			t.passed("job-isolation", "kbgen's isolation step passed, started by its agent")
		}
	}
	for _, trial := range submissions {
		b := t.build(ctx, "evaluate", trial.code)
		if b == nil {
			continue
		}
		switch report, err := b.client.Collect(ctx, b.run); {
		case err != nil:
			t.failed("job-"+trial.name, "no result.json of a %s submission: %v; its job ended %s: %s", trial.name, err, b.job.State, b.faults(ctx))
		case report.Result.Outcome.Name != trial.want:
			t.failed("job-"+trial.name, "a %s submission ended as %s, want %s", trial.name, outcomeOf(report.Result), trial.want)
		default:
			t.passed("job-"+trial.name, "judged a %s submission, and its result.json arrived", trial.name)
		}
	}
}

func outcomeOf(r *schema.Result) string {
	if r.Outcome.Name == "" {
		return "nothing"
	}
	return r.Outcome.Name + ": " + r.Outcome.Text
}

// A trialBuild is a finished build of one of kbgen's pipelines on the slot.
type trialBuild struct {
	client *launcher.Client
	run    *launcher.Run
	job    launcher.Job // the last
}

// build runs one of kbgen's pipelines on the slot. It returns nil if that is a finding
// already.
func (t *slotTrial) build(ctx context.Context, pipeline, code string) *trialBuild {
	if t.v.pipelines[t.slug(pipeline)] == "" {
		return nil // it could not be rendered
	}
	b, err := t.submit(ctx, pipeline, code)
	if err != nil {
		t.failed("job-"+pipeline, "pipeline %s: %v", pipeline, err)
		return nil
	}
	if want := t.v.config.Node + "-" + t.slot.Name; b.job.Agent.Name != want {
		t.failed("job-"+pipeline, "agent %q took its job, want %q", b.job.Agent.Name, want)
		return nil
	}
	return b
}

// slug names a pipeline of the slot.
func (t *slotTrial) slug(pipeline string) string {
	return strings.ToLower(t.slot.Name) + "-" + pipeline
}

// submit makes a build and waits for its end.
func (t *slotTrial) submit(ctx context.Context, pipeline, code string) (b *trialBuild, err error) {
	b = &trialBuild{}
	if b.client, err = t.v.server.client(t.slug(pipeline)); err != nil {
		return nil, err
	}
	p, err := payload(code)
	if err != nil {
		return nil, err
	}
	if b.run, err = b.client.Create(ctx, launcher.Submission{Payload: p, GPU: t.slot.GPUType, Queue: t.slot.Queue, ID: "kbnode"}); err != nil {
		return nil, err
	}
	over, err := awaitBuild(ctx, b.client, b.run.Build)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(over.Jobs, func(j launcher.Job) bool { return strings.HasPrefix(j.StepKey, pipeline) }) {
		return nil, errors.New("it made no job")
	}
	b.job = over.Jobs[len(over.Jobs)-1]
	return b, nil
}

// steps renders a pipeline for the slot's GPU type, for this slot's agent alone.
func (t *slotTrial) steps(name string) (string, error) {
	p, request, err := pipelineOn(t.slot, name)
	if err != nil {
		return "", err
	}
	request.Run.Mode = schema.ModeTest
	doc, err := generator.Render(p, request, generator.YAML)
	if err != nil {
		return "", err
	}
	queue := "      queue: " + request.GPUs[0].Queue + "\n"
	mine := "      queue: " + strconv.Quote(t.slot.Queue) + "\n"
	for _, tag := range t.slot.Tags {
		if key, value, _ := strings.Cut(tag, "="); key != "queue" {
			mine += "      " + key + ": " + strconv.Quote(value) + "\n"
		}
	}
	if !strings.Contains(string(doc), queue) {
		return "", fmt.Errorf("pipeline %s: no %q in the step", name, strings.TrimSpace(queue))
	}
	return strings.ReplaceAll(string(doc), queue, mine), nil
}

// faults returns the lines of the job's log that say what is wrong: those of the
// isolation script, else the last ones.
func (b *trialBuild) faults(ctx context.Context) string {
	log, err := b.client.Log(ctx, b.run.Build, b.job.ID)
	if err != nil {
		return "no log"
	}
	lines := strings.Split(strings.TrimSpace(log), "\n")
	var bad []string
	for _, line := range lines {
		if _, rest, ok := strings.Cut(line, "FAIL "); ok {
			bad = append(bad, rest)
		}
	}
	if len(bad) == 0 {
		bad = lines[max(0, len(lines)-3):]
	}
	return strings.Join(bad, " / ")
}
