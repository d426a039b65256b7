// Package trial proves a machine by trying it: in containers that it starts itself,
// with jobs of a stand-in for Buildkite, and through Buildkite. It knows what kbgen
// writes for a slot; it decides nothing about real jobs.
package trial

import (
	"context"
	"encoding/json"
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
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/apply"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
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
	unlock, err := (&apply.Machine{Root: "/"}).Lock("verify")
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	v := &verification{config: config, log: log}
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

	server  *local.Server
	results []doctor.Result
}

// run drains the slots, turns their agents to a stand-in, has each take its jobs,
// all at once, and turns them back, whatever has happened.
func (v *verification) run(ctx context.Context) (results []doctor.Result, err error) {
	v.log("draining %d slots", len(v.slots))
	defer func() { err = errors.Join(err, v.restore(context.WithoutCancel(ctx))) }()
	if err := v.units(ctx, "stop"); err != nil {
		return nil, err
	}
	v.results = append(v.results, Containers(ctx, v.config, v.slots)...)
	if err := v.divert(ctx); err != nil {
		return nil, err
	}
	v.log("running jobs on %d slots at once", len(v.slots))
	var wait sync.WaitGroup
	trials := make([]*slotTrial, len(v.slots))
	for i, s := range v.slots {
		trials[i] = &slotTrial{v: v, slot: s}
		wait.Go(func() { trials[i].run(ctx) })
	}
	wait.Wait()
	for _, t := range trials {
		v.results = append(v.results, t.results...)
	}
	return v.results, nil
}

// units does something with the agents of all slots, at once.
func (v *verification) units(ctx context.Context, verb ...string) error {
	for _, s := range v.slots {
		verb = append(verb, s.Unit())
	}
	_, err := system.Run(ctx, "systemctl", verb...)
	return err
}

// divert starts the stand-in and the slots' agents on it.
func (v *verification) divert(ctx context.Context) error {
	if err := errors.Join(os.RemoveAll(verifyDir), os.MkdirAll(verifyDir, 0o700)); err != nil { // of one that was ended by force
		return err
	}
	var err error
	v.server, err = local.Start(local.Options{Dir: filepath.Join(verifyDir, "stand-in"), LostAfter: 5 * time.Minute})
	if err != nil {
		return err
	}
	token := filepath.Join(verifyDir, "token")
	if err := os.WriteFile(token, []byte(v.server.AgentToken()+"\n"), 0o600); err != nil {
		return err
	}
	dropIn := "# kbnode verify: removed when it ends\n[Service]\n" +
		"OpenFile=\nOpenFile=" + token + ":token:read-only\nLoadCredential=token:" + token + "\n" +
		"Environment=BUILDKITE_AGENT_ENDPOINT=" + v.server.URL() + "/v3\n"
	for _, s := range v.slots { // one for all would turn away whichever else starts again meanwhile
		name := doctor.VerifyDropIn(s)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(dropIn), 0o644)); err != nil {
			return err
		}
	}
	if _, err := system.Run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	if err := v.units(ctx, "start"); err != nil {
		return fmt.Errorf("the agents do not start: %w; kbnode doctor says why", err)
	}
	if err := v.server.AwaitAgents(ctx, len(v.slots)); err != nil {
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
		if step(func(ctx context.Context) error { return v.units(ctx, "stop") }) {
			start = start[:1]
		}
		step(func(ctx context.Context) error {
			_, err := dropVerify(ctx, v.slots)
			return err
		})
		step(v.server.Close)
		step(func(context.Context) error { return os.RemoveAll(verifyDir) })
	}
	step(func(ctx context.Context) error { return v.units(ctx, start...) })
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
	slots, err := config.Pick(nil)
	if err != nil {
		return err
	}
	away, err := dropVerify(ctx, slots)
	if err != nil || len(away) == 0 {
		return err
	}
	return (&verification{slots: away}).units(ctx, "try-restart", "--no-block")
}

// A slotTrial is one slot's jobs.
type slotTrial struct {
	v       *verification
	slot    *node.Slot
	results []doctor.Result
}

func (t *slotTrial) add(code string, state doctor.State, format string, args ...any) {
	t.results = append(t.results, doctor.Result{Code: code, Slot: t.slot.Name, State: state, Text: text.Line(fmt.Sprintf(format, args...), 400),
		Fix: map[bool]string{true: "journalctl -u " + t.slot.Unit(), false: ""}[state == doctor.Failure]})
}

// run has the slot judge a right and a wrong submission, and, where its jobs are
// containers, try what they must not be able to do.
func (t *slotTrial) run(ctx context.Context) {
	if t.slot.Platform == "docker" {
		t.build(ctx, "isolation", "", func(b engine.Build, j engine.Job) {
			if j.State != engine.JobPassed {
				t.add("job-isolation", doctor.Failure, "kbgen's isolation step ended %s: %s", j.State, t.faults(j))
				return
			}
			t.add("job-isolation", doctor.OK, "kbgen's isolation step passed, started by its agent and the docker plugin")
		})
	}
	for _, trial := range submissions {
		t.build(ctx, "evaluate", trial.code, func(b engine.Build, j engine.Job) {
			result, err := t.result(b)
			switch {
			case err != nil:
				t.add("job-"+trial.name, doctor.Failure, "no result.json of a %s submission: %v; its job ended %s: %s", trial.name, err, j.State, t.faults(j))
			case result.Outcome.Name != trial.want:
				t.add("job-"+trial.name, doctor.Failure, "a %s submission ended as %s, want %s", trial.name, outcomeOf(result), trial.want)
			default:
				t.add("job-"+trial.name, doctor.OK, "judged a %s submission, and its result.json arrived", trial.name)
			}
		})
	}
}

func outcomeOf(r *schema.Result) string {
	if r.Outcome.Name == "" {
		return "nothing"
	}
	return r.Outcome.Name + ": " + r.Outcome.Text
}

// build runs one of kbgen's pipelines on the slot and hands over its job.
func (t *slotTrial) build(ctx context.Context, pipeline, code string, then func(engine.Build, engine.Job)) {
	b, j, err := t.job(ctx, pipeline, code)
	if err != nil {
		t.add("job-"+pipeline, doctor.Failure, "%v", err)
		return
	}
	if j.AgentName != t.v.config.Node+"-"+t.slot.Name {
		t.add("job-"+pipeline, doctor.Failure, "agent %q took its job, want %q", j.AgentName, t.v.config.Node+"-"+t.slot.Name)
		return
	}
	then(b, j)
}

func (t *slotTrial) job(ctx context.Context, pipeline, code string) (engine.Build, engine.Job, error) {
	var none engine.Job
	steps, err := t.steps(pipeline)
	if err != nil {
		return engine.Build{}, none, err
	}
	slug := strings.ToLower(t.slot.Name) + "-" + strconv.Itoa(len(t.v.server.Engine.Pipelines()))
	if _, err := t.v.server.Engine.CreatePipeline(engine.Pipeline{Slug: slug, Configuration: steps, SkipCheckout: true}); err != nil {
		return engine.Build{}, none, err
	}
	env := map[string]string{schema.EnvRunID: slug}
	if code != "" {
		p, err := payload(code)
		if err != nil {
			return engine.Build{}, none, err
		}
		if env[schema.EnvPayload], err = p.Encode(); err != nil {
			return engine.Build{}, none, err
		}
	}
	b, err := t.v.server.Engine.CreateBuild(slug, engine.NewBuild{Message: "kbnode verify", Env: env})
	if err != nil {
		return engine.Build{}, none, err
	}
	if b, err = t.v.server.Engine.Wait(ctx, b.ID); err != nil {
		return b, none, fmt.Errorf("pipeline %s: %w", pipeline, err)
	}
	at := slices.IndexFunc(b.Jobs, func(j engine.Job) bool { return strings.HasPrefix(j.StepKey, pipeline) })
	if at < 0 {
		return b, none, fmt.Errorf("pipeline %s made no job", pipeline)
	}
	return b, b.Jobs[len(b.Jobs)-1], nil
}

// steps renders a pipeline for the slot's GPU type, for this slot's agent alone.
func (t *slotTrial) steps(name string) (string, error) {
	row, err := pipelines.Fleet.Lookup(t.slot.GPUType)
	if row.Name == "" {
		return "", err
	}
	row.Off, row.CPUs, row.MemoryGiB = "", max(1, t.slot.Cores()), max(1, int(t.slot.MemoryBytes>>30))
	p, err := pipelines.Find(name)
	if err != nil {
		return "", err
	}
	doc, err := generator.Render(p, pipelines.Request{GPUs: []pipelines.GPUType{row}, Run: pipelines.Run{Mode: schema.ModeTest}}, generator.YAML)
	if err != nil {
		return "", err
	}
	queue := "      queue: " + row.Queue + "\n"
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

// result reads what the build's job delivered.
func (t *slotTrial) result(b engine.Build) (*schema.Result, error) {
	all, err := t.v.server.Engine.BuildArtifacts(b.ID, false)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Path != "result.json" || a.State != engine.ArtifactFinished {
			continue
		}
		body, err := os.ReadFile(t.v.server.Engine.ArtifactFile(a.ID))
		if err != nil {
			return nil, err
		}
		if !json.Valid(body) {
			return nil, errors.New("result.json is no JSON")
		}
		return schema.DecodeResult(body)
	}
	return nil, errors.New("no such artifact")
}

// faults are the lines of a job's log that say what is wrong: those of the
// isolation script, else the last ones.
func (t *slotTrial) faults(j engine.Job) string {
	f, err := t.v.server.Engine.Log(j.ID)
	if err != nil {
		return "no log"
	}
	defer f.Close()
	body := make([]byte, 1<<20)
	n, _ := f.Read(body)
	lines := strings.Split(strings.TrimSpace(text.Lines(string(body[:n]))), "\n")
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
