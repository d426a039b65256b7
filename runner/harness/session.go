package harness

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Options are what a session needs of its surroundings.
type Options struct {
	Payload *schema.Payload
	Variant string          // the known main file, "" for none
	Sandbox sandbox.Options // of judge and worker; Dir and Judge are set here
	Dir     string          // an existing directory of the caller's, who removes it
	Python  string          // path of the interpreter; "" with Programs
	Environ []string        // what a submission may see

	// Programs are the files that the compiler made of a C++ task, by the names of
	// plan.Build; nil: the task is in Python. The compiler is the caller's affair, see
	// [Sources].
	Programs map[string]string

	// Fresh: every phase gets an interpreter of its own, instead of a fork of one
	// that has imported the task's modules.
	Fresh bool

	// Unproved returns "" if a proof shows that this harness works on the GPU, or else the
	// reason why none does. With a reason, or if Unproved is nil, a task with tensors on a
	// GPU is judged here only if it asks for this harness. It is also called for such a task.
	Unproved func(context.Context) string

	// standIn takes the place of the GPU. Only this package's tests can set it.
	standIn standIn
}

// A Session is judge and worker of one evaluation.
type Session struct {
	o       Options
	rules   rules
	modules []string // that both imported

	judge  *sandboxed
	parent *sandboxed // of the workers

	// notForked says why every phase gets an interpreter of its own.
	notForked string
	parents   int             // interpreters started so far
	used      bool            // the parent cannot be used again
	standing  standing        // of the parent, before there was a worker
	reported  *schema.Sandbox // what isolated those before it
	floor     time.Duration
	phases    int // so far

	hasGPU     bool             // a kernel can compute elsewhere than on the cores
	onDevice   bool             // inputs have tensors on a device
	device     [2]*deviceMemory // the judge's: for inputs, for outputs
	inputs     int              // numbers given to inputs so far
	selftested bool             // the check was asked about the task's own answer
}

// A TaskError says that the task's own files do not work: nothing of the
// submission has run.
type TaskError struct{ Text string }

func (e *TaskError) Error() string { return e.Text }

// An UnsupportedError says that the task's inputs cannot go through the channel.
type UnsupportedError struct {
	What string
	// Machine: another machine might do.
	Machine bool
}

func (e *UnsupportedError) Error() string {
	return "its inputs cannot be handed to another process: " + e.What
}

// Open starts the two interpreters and lets both import the task's heavy
// modules, the judge the reference, too; or the two programs. It makes one input.
//
// Errors: *[TaskError], *[UnsupportedError], *sandbox.WeakError; any other is
// the machine's fault.
func Open(ctx context.Context, o Options) (*Session, error) {
	r, ok := rulesFor(o.Variant)
	if !ok {
		return nil, fmt.Errorf("no rules for the main file %q", o.Variant)
	}
	s := &Session{o: o, rules: r, hasGPU: sandbox.HasGPU()}
	err := s.open(ctx)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Session) open(ctx context.Context) error {
	var judgeErr, parentErr error
	var both sync.WaitGroup
	wanted := imports(s.o.Payload)
	both.Go(func() { judgeErr = s.openJudge(ctx, wanted) })
	if s.o.Payload.Mode == schema.ModeProfile { // each phase's is started by its profiler
		s.used, s.notForked = true, notForkedProfile
	} else {
		both.Go(func() { parentErr = s.openParent(ctx, wanted, nil, sandbox.Directories{}) })
	}
	both.Wait()
	if err := errors.Join(judgeErr, parentErr); err != nil {
		return err
	}
	var err error
	if s.floor, err = nativeFloor(); err != nil || !s.onDevice {
		return err
	}
	return s.tryDevice(ctx)
}

// openJudge starts the judge and has it load the reference and make an input.
func (s *Session) openJudge(ctx context.Context, modules []string) (err error) {
	if s.judge, err = s.openSandboxed("judge", judgePy, s.o.Programs[plan.BuildJudge], true, nil, directories(filepath.Join(s.o.Dir, "judge"))); err != nil {
		return err
	}
	for _, name := range []string{taskFile, utilsFile, referenceFile} { // those of Python
		if text, ok := s.o.Payload.Sources.Get(name); ok {
			if err := os.WriteFile(filepath.Join(s.judge.dirs.Work, name), []byte(text), 0o644); err != nil {
				return fmt.Errorf("writing the judge's files: %w", err)
			}
		}
	}
	if err := s.judge.sandbox.Give(s.judge.dirs.Work, 0o700); err != nil {
		return err
	}
	orders := []map[string]any{
		{"op": "import", "modules": modules},
		{"op": "load", "directory": s.judge.dirs.Work, "seed": s.generatorSeed()},
	}
	if s.native() {
		orders = nil // it came with the reference in it
	}
	for _, order := range orders {
		if _, err := s.askJudge(ctx, importLimit, order, nil); err != nil {
			return err
		}
	}
	return s.tryInput(ctx)
}

// generatorSeed is what the reference's own generators are set to, as the main
// file does it.
func (s *Session) generatorSeed() any {
	switch {
	case s.rules.typed:
		return nil
	case s.o.Payload.Seed != nil:
		return *s.o.Payload.Seed
	}
	return 42
}

// tryInput has the judge make one input, to see that the channel carries it.
func (s *Session) tryInput(ctx context.Context) error {
	for _, p := range plan.New(s.o.Payload, plan.Machine{}) {
		cases, err := s.rules.readCases(&p, s.o.Payload)
		if err != nil {
			return &TaskError{err.Error()}
		}
		if len(cases) == 0 {
			continue
		}
		in, err := s.makeInput(ctx, cases[0])
		if err != nil {
			return err
		}
		if s.onDevice = in.onDevice > 0; s.onDevice {
			why := "nothing shows that this harness works there"
			if s.o.Unproved != nil {
				why = s.o.Unproved(ctx)
			}
			if why != "" && s.o.Payload.Harness != schema.HarnessIsolated {
				return errors.Join(&UnsupportedError{What: "tensors on a GPU; " + why}, s.drop(ctx, in))
			}
		}
		return s.drop(ctx, in)
	}
	return nil
}

// openParent starts the interpreter that workers are forked from.
func (s *Session) openParent(ctx context.Context, modules []string, profile *plan.Profile, dirs sandbox.Directories) (err error) {
	s.parents++
	name := "worker"
	if s.parents > 1 {
		name += "-" + strconv.Itoa(s.parents)
	}
	if profile == nil {
		dirs = directories(filepath.Join(s.o.Dir, name))
	}
	if s.parent, err = s.openSandboxed(name, workerPy, s.o.Programs[plan.BuildLauncher], false, profile, dirs); err != nil {
		return err
	}
	s.used = false
	if sandbox.OwnUser() && profile == nil { // phases' directories are handed over one by one
		if err := os.Chmod(s.parent.dirs.Work, 0o711); err != nil {
			return fmt.Errorf("closing the workers' directory: %w", err)
		}
	}
	answer, err := s.parent.ask(ctx, importLimit, map[string]any{"modules": modules, "profiled": profile != nil}, nil)
	if err != nil {
		return err
	}
	told, err := decodeTexts(answer[1:])
	if err != nil || answer[0] != 'R' || len(told) == 0 {
		return &brokenError{"worker", "says nothing of use"}
	}
	s.modules = told[1:]
	s.standing, _ = standingOf(s.parent.pid) // gone: the first phase says so
	switch {
	case s.native():
		s.notForked = "a program is nothing to fork"
	case s.notForked != "":
	case s.o.Fresh:
		s.notForked = "switched off"
	case told[0] != "1":
		s.notForked = "after the imports the interpreter has " + told[0] + " threads, and cannot be forked"
	}
	return nil
}

// Preloaded lists the modules that both interpreters imported once, and why
// there are none. Programs in C++ import none.
func (s *Session) Preloaded() (modules []string, why string) {
	switch {
	case s.native():
		return nil, ""
	case s.notForked != "":
		return nil, s.notForked
	}
	return s.modules, ""
}

// Report joins what isolated judge and worker.
func (s *Session) Report() *schema.Sandbox {
	r := s.reported
	for _, b := range []*sandboxed{s.judge, s.parent} {
		if b != nil {
			r = r.Join(b.sandbox.Report())
		}
	}
	return r
}

// Close ends every process.
//
// Error: something cannot be killed.
func (s *Session) Close() error { return errors.Join(s.judge.close(), s.parent.close()) }

// askJudge asks and sorts what can be wrong.
func (s *Session) askJudge(ctx context.Context, limit time.Duration, order map[string]any, body []byte, files ...*os.File) ([]byte, error) {
	answer, err := s.judge.ask(ctx, limit, order, body, files...)
	if err != nil {
		op, _ := order["op"].(string)
		return nil, s.crashed(op, err)
	}
	switch answer[0] {
	case '!':
		told, err := decodeTexts(answer[1:])
		if err != nil || len(told) == 0 {
			told = []string{"says nothing of use"}
		}
		return nil, &brokenError{"judge", "failed: " + text.Line(told[0], 500)}
	case 'X':
		raised, module := decodeRaised(answer[1:])
		if judge.MachineFault(raised.Message) {
			return nil, &brokenError{"judge", "cannot use the GPU: " + text.Line(raised.Message, 500)}
		}
		if module, _, _ = strings.Cut(module, "."); slices.Contains(imports(s.o.Payload), module) {
			return nil, &brokenError{"judge", "has no module " + module + ", which the task's files import: add it to the machine's image"}
		}
		return nil, &TaskError{s.taskFault(answer[1:])}
	case 'U':
		told, err := decodeTexts(answer[1:])
		if err != nil || len(told) == 0 {
			return nil, &brokenError{"judge", "says nothing of use"}
		}
		return nil, &UnsupportedError{What: told[0]}
	}
	return answer[1:], nil
}

// taskFault says what of the task's files failed, and where. With a secret seed
// no value of an input may be in it.
func (s *Session) taskFault(raw []byte) string {
	raised, module := decodeRaised(raw)
	where := ""
	for _, f := range raised.Frames {
		switch base := filepath.Base(f.File); base {
		case taskFile, utilsFile, referenceFile:
			where = base + ":" + strconv.Itoa(f.Line) + ": "
		}
	}
	words := raised.Text()
	if s.o.Payload.Seed != nil && module == "" {
		words = raised.Type
	}
	return "the task's own files do not work: " + where + words
}

// askLimit bounds one step of the judge's: making an input, copying, checking.
const askLimit = 10 * time.Minute

// An input is one that the judge holds, or a batch of them.
type input struct {
	id      int
	size    uint64 // of the arena that it needs, in bytes
	message []byte // for the worker
	// onDevice is the size of the arena on a device that it needs, 0 when all of it
	// is the processor's.
	onDevice uint64
	batch    [][]argument
}

// makeInput has the judge make the input of a case, or of several for one call.
func (s *Session) makeInput(ctx context.Context, cases ...testCase) (*input, error) {
	s.inputs++
	in := &input{id: s.inputs}
	for _, c := range cases {
		in.batch = append(in.batch, c.args)
	}
	answer, err := s.askJudge(ctx, askLimit, map[string]any{"op": "make", "id": in.id, "batch": in.batch, "inputs": s.o.Payload.Inputs}, nil)
	if err != nil {
		return nil, err
	}
	if len(answer) < 16 {
		return nil, &brokenError{"judge", "says nothing of use"}
	}
	in.size, in.onDevice = binary.LittleEndian.Uint64(answer), binary.LittleEndian.Uint64(answer[8:])
	in.message = append([]byte(nil), answer[16:]...)
	if size := max(in.size, in.onDevice); size > arenaMaxSize {
		return nil, &TaskError{fmt.Sprintf("an input of %d bytes, at most %d are possible", size, int64(arenaMaxSize))}
	}
	return in, nil
}

// drop has the judge forget an input.
func (s *Session) drop(ctx context.Context, in *input) error {
	_, err := s.askJudge(ctx, askLimit, map[string]any{"op": "drop", "id": in.id}, nil)
	return err
}

// fill has the judge copy an input into the arenas, and returns how long that took.
func (s *Session) fill(ctx context.Context, in *input) (time.Duration, error) {
	answer, err := s.askJudge(ctx, askLimit, map[string]any{"op": "fill", "id": in.id}, nil)
	if err != nil {
		return 0, err
	}
	return timedFill(answer)
}

// A probe is a place of an output, one to sixteen bytes long, and what stood there
// when the worker said "done".
type probe struct {
	arena int
	at    uint64
	size  int
	bytes [16]byte
}

// A finding is what the judge says of one output.
type finding struct {
	good bool
	late int    // places that changed after "done"
	text string // the check's
	// raised: the check could not digest the output.
	raised bool
}

// check has the judge copy an output and, with look, check it. The input is
// gone afterwards.
func (s *Session) check(ctx context.Context, in *input, a *answer, look bool) (finding, error) {
	storages := make([][3]uint64, len(a.layout.storages))
	for i, st := range a.layout.storages {
		storages[i] = [3]uint64{uint64(st.arena), st.start, st.bytes}
	}
	places := make([][3]any, len(a.probes))
	for i, p := range a.probes {
		places[i] = [3]any{p.arena, p.at, hex.EncodeToString(p.bytes[:p.size])}
	}
	order := map[string]any{"op": "check", "id": in.id, "storages": storages, "places": places, "check": look, "item": nil}
	if n := len(in.batch); n > 1 { // one of them, which nobody can foresee
		order["item"] = random(int64(n))
	}
	raw, err := s.askJudge(ctx, askLimit, order, a.layout.tree)
	if err != nil {
		return finding{}, err
	}
	told, err := decodeTexts(raw)
	if err != nil || len(told) != 4 {
		return finding{}, &brokenError{"judge", "says nothing of use"}
	}
	f := finding{good: told[0] == "1", text: told[2], raised: told[3] != ""}
	f.late, _ = strconv.Atoi(told[1])
	if f.late > 0 || f.good {
		return f, nil
	}
	return f, s.trustCheck(ctx, in, f.raised)
}

// trustCheck has the check judge the task's own answer after it refused the submission's.
// It does so once per session, and whenever the check raised.
//
// Error: a *TaskError when it refuses that, too.
func (s *Session) trustCheck(ctx context.Context, in *input, raised bool) error {
	if s.selftested && !raised {
		return nil
	}
	s.selftested = true
	raw, err := s.askJudge(ctx, askLimit, map[string]any{"op": "selftest", "batch": in.batch}, nil)
	if err != nil {
		return err
	}
	if told, err := decodeTexts(raw); err != nil || len(told) == 0 || told[0] != "1" {
		return &TaskError{"the task's check refuses the task's own answer"}
	}
	return nil
}

// random is a number from 0 to below n that nobody can foresee.
func random(n int64) int64 {
	r, err := rand.Int(rand.Reader, big.NewInt(n))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return r.Int64()
}
