package pipelines

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// All stands for every row that is not switched off and that a pipeline serves.
const All = "ALL"

// A Choice is what somebody says on a command line about a build. What is nil
// is said by the variable named beside it.
type Choice struct {
	GPUs           []string // names of rows, or All alone; EnvGPU, EnvQueue, EnvOldQueue
	Image          *string  // EnvImage
	PayloadChunks  *int     // EnvPayloadChunks
	Mode           *string  // EnvMode
	RunID          *string  // EnvRunID
	User           *string  // EnvUser
	TimeoutSeconds *string  // EnvTimeoutSeconds

	// RefuseImages makes an image that the build may not name an error; else the
	// rows' own is used, and a note says so. See [ImageSources].
	RefuseImages bool

	Selection Selection
	Registry  Secret // see Request.Registry
	Relay     bool   // see Request.Relay
	Version   string // see Request.Version

	IncludeOff bool // take rows that are switched off as if they were not
	Static     bool // see Request.Static; the build's variables are not looked at
}

// Errors of [NewRequest] that a caller can say more about.
var (
	ErrNoGPUs = errors.New("no GPU type given")
	ErrImage  = errors.New("image cannot be used")
)

// An imageError is ErrImage with the image and the reason.
type imageError struct{ ref, why string }

func (e *imageError) Error() string        { return fmt.Sprintf("image %.200q %s", e.ref, e.why) }
func (e *imageError) Is(target error) bool { return target == ErrImage }

// A TableError is a fault of the table of GPU types, not of what was asked.
type TableError struct{ Err error }

func (e *TableError) Error() string { return "the table of GPU types: " + e.Err.Error() }
func (e *TableError) Unwrap() error { return e.Err }

// NewRequest returns what a build of p is for: what c says, and for the rest
// what the variables of the build say, which lookup finds. An empty variable
// counts as unset. Variables of the build, all optional but the first or second:
//
//	KERNELBOT_GPU              GPU type, or several with commas between them
//	KERNELBOT_QUEUE            queue; GPU_QUEUE in older launchers. A vendor's own,
//	                           nvidia-h100-0, takes the step instead of the row's
//	KERNELBOT_MODE             mode of the run: decides the priority
//	KERNELBOT_RUN_ID           id of the run; with several GPU types each job
//	                           gets ID.GPU. In a job of Buildkite's a build
//	                           without one gets build-BUILDKITE_BUILD_ID.GPU
//	KERNELBOT_PAYLOAD_CHUNKS   number of KERNELBOT_PAYLOAD_<i>
//	KERNELBOT_TIMEOUT_SECONDS  what the payload's phases may legally take in
//	                           all; decides the step's timeout
//	KERNELBOT_USER             whose submission it is: bounds how many run at once
//	KERNELBOT_IMAGE            replaces the rows' image, if [ImageSources] has it
//	KERNELBOT_SECRET_RUN_ID    id of a second run in the same build; its
//	                           KERNELBOT_SECRET_PAYLOAD (or _<i> and _CHUNKS), _MODE
//	                           and _TIMEOUT_SECONDS go with it
//
// No payload is read. The steps name its variables; jobs find the values in the
// build's environment.
//
// Errors: [TableError]; [OffError]; any other says what cannot be asked for,
// among them [UnknownError], [ErrNoGPUs] and [ErrImage]. Faults that only show
// when all is known are [Request.Validate]'s.
func NewRequest(p Pipeline, c Choice, lookup func(name string) (string, bool)) (r Request, err error) {
	if err := errors.Join(Fleet.Validate(), ServiceQueues.Validate()); err != nil {
		return r, &TableError{err}
	}
	get := func(name string) string { value, _ := lookup(name); return value }
	or := func(chosen *string, name string) string {
		if chosen != nil {
			return *chosen
		}
		return get(name)
	}
	table := Fleet
	if c.IncludeOff {
		table = table.On()
	}
	if len(c.GPUs) > 0 || p.NeedsGPUs || c.Static {
		if r.GPUs, err = choose(table, p, c.GPUs, get); err != nil {
			return r, err
		}
	}
	if c.Static && len(r.GPUs) != 1 {
		return r, fmt.Errorf("--static: got %d GPU types, want one: the step is for its queue alone", len(r.GPUs))
	}
	r.Static, r.Relay, r.Version, r.Selection, r.Registry = c.Static, c.Relay, c.Version, c.Selection, c.Registry
	r.Source = get(schema.EnvBuildSource)
	if r.Image, r.Notes, err = chooseImage(c, r.GPUs, get); err != nil {
		return r, err
	}
	if c.Static {
		return r, nil // it serves every build: nothing of this one belongs there
	}
	r.User = or(c.User, schema.EnvUser)
	r.Run = Run{ID: or(c.RunID, schema.EnvRunID), Mode: or(c.Mode, schema.EnvMode)}
	if build := get(schema.EnvBuildID); r.Run.ID == "" && build != "" {
		r.Run.ID, r.Run.Derived = schema.DerivedRunID(build), true
	}
	if c.PayloadChunks != nil {
		r.Run.PayloadChunks = *c.PayloadChunks
	} else if r.Run.PayloadChunks, err = chunks(schema.EnvPayloadChunks, get); err != nil {
		return r, err
	}
	if r.Run.Budget, err = seconds(schema.EnvTimeoutSeconds, or(c.TimeoutSeconds, schema.EnvTimeoutSeconds)); err != nil {
		return r, err
	}
	if r.Secret, err = secretRun(get); err != nil {
		return r, err
	}
	for _, run := range []*Run{&r.Run, r.Secret} {
		if run == nil {
			continue
		}
		if err := CheckMode(run.Mode); err != nil {
			return r, err
		}
		if n := run.PayloadChunks; n < 0 || n > schema.MaxChunks {
			return r, fmt.Errorf("payload chunks: got %d, want 0 to %d", n, schema.MaxChunks)
		}
	}
	return r, nil
}

// secretRun is the build's second run; nil when it has none. It is named by
// variables only: a person has no use for it.
func secretRun(get func(string) string) (run *Run, err error) {
	id := get(schema.SecretEnv(schema.EnvRunID))
	if id == "" {
		return nil, nil
	}
	run = &Run{ID: id, Mode: get(schema.SecretEnv(schema.EnvMode))}
	if run.PayloadChunks, err = chunks(schema.SecretEnv(schema.EnvPayloadChunks), get); err != nil {
		return nil, err
	}
	name := schema.SecretEnv(schema.EnvTimeoutSeconds)
	run.Budget, err = seconds(name, get(name))
	return run, err
}

// chunks reads a number of variables; empty is none said.
func chunks(name string, get func(string) string) (int, error) {
	value := get(name)
	if value == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0, fmt.Errorf("%s: got %.40q, want a number", name, value)
	}
	return n, nil
}

// seconds reads whole seconds; empty is none said.
func seconds(name, value string) (time.Duration, error) {
	if value == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > 86400 {
		return 0, fmt.Errorf("%s: got %.40q, want whole seconds, 1 to 86400", name, value)
	}
	return time.Duration(n) * time.Second, nil
}

// choose finds the rows that are named, or else those that the variables name.
// Names beat every variable; variables must not contradict each other.
func choose(table Table, p Pipeline, names []string, get func(string) string) (Table, error) {
	if len(names) == 0 {
		return fromVariables(table, get)
	}
	if len(names) == 1 && strings.EqualFold(names[0], All) {
		var served Table
		for _, g := range table.Available() {
			if p.Serves == nil || p.Serves(g) {
				served = append(served, g)
			}
		}
		return served, nil
	}
	return several(table, names, "--gpu")
}

// several finds the rows of several names, each once.
func several(table Table, names []string, what string) (Table, error) {
	var chosen Table
	seen := map[string]bool{}
	for _, name := range names {
		if strings.EqualFold(name, All) {
			return nil, fmt.Errorf("%s %s stands for every GPU type, got others beside it", what, All)
		}
		g, err := table.Lookup(name)
		if err != nil {
			return nil, err
		}
		if seen[g.Name] {
			return nil, fmt.Errorf("%s %s: given twice", what, g.Name)
		}
		seen[g.Name] = true
		chosen = append(chosen, g)
	}
	return chosen, nil
}

// fromVariables finds the rows by EnvGPU (one, or several with commas) and by
// EnvQueue (older launchers: EnvOldQueue). A queue that is set must mean the
// same row.
func fromVariables(table Table, get func(string) string) (Table, error) {
	if list := get(schema.EnvGPU); strings.Contains(list, ",") {
		chosen, err := several(table, strings.Split(list, ","), schema.EnvGPU)
		if err != nil && !strings.HasPrefix(err.Error(), schema.EnvGPU) && !errors.As(err, new(*OffError)) {
			err = fmt.Errorf("%s: %w", schema.EnvGPU, err)
		}
		return chosen, err
	}
	var chosen GPUType
	var chosenBy string
	for _, source := range []struct {
		variable string
		lookup   func(string) (GPUType, error)
	}{
		{schema.EnvGPU, table.Lookup},
		{schema.EnvQueue, table.LookupQueue},
		{schema.EnvOldQueue, table.LookupQueue},
	} {
		value := get(source.variable)
		if value == "" {
			continue
		}
		g, err := source.lookup(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source.variable, err)
		}
		switch {
		case chosenBy == "":
			chosen, chosenBy = g, source.variable
		case g.Name != chosen.Name:
			return nil, fmt.Errorf("%s says %s, but %s=%q is served by %s", chosenBy, chosen.Name, source.variable, value, g.Name)
		case chosenBy == schema.EnvGPU:
			chosen, chosenBy = g, source.variable // a queue may be a vendor's own
		case g.Queue != chosen.Queue:
			return nil, fmt.Errorf("%s=%q, but %s=%q: want one queue", chosenBy, chosen.Queue, source.variable, value)
		}
	}
	if chosenBy == "" {
		return nil, fmt.Errorf("%w, have %s", ErrNoGPUs, strings.Join(table.Names(), ", "))
	}
	return Table{chosen}, nil
}
