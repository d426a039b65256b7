package harness

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

const ms = time.Millisecond

// at makes accounts of threads named a, b, …; cpu is the CPU time of other
// processes of the sandbox.
func at(cpu time.Duration, turns ...threadTimes) accounts {
	a := accounts{firstThread: "a", threads: map[string]threadTimes{}, counted: true, cpuKnown: true, cpuBefore: cpu}
	for i, t := range turns {
		a.threads[string(rune('a'+i))] = t
		a.cpuBefore += t.ran
	}
	a.cpuAfter = a.cpuBefore
	return a
}

func TestWaited(t *testing.T) {
	before := at(5*ms, threadTimes{100 * ms, 7 * ms}, threadTimes{50 * ms, ms})
	for _, tt := range []struct {
		name            string
		after           accounts
		others, unclear time.Duration
	}{
		{"no thread waited", at(5*ms, threadTimes{108 * ms, 7 * ms}, threadTimes{50 * ms, ms}), 0, 0},
		{"a stranger ran", at(5*ms, threadTimes{108 * ms, 37 * ms}, threadTimes{50 * ms, ms}), 30 * ms, 0},
		{"its own thread ran", at(5*ms, threadTimes{108 * ms, 37 * ms}, threadTimes{80 * ms, ms}), 0, 30 * ms},
		{"its own process ran", at(35*ms, threadTimes{108 * ms, 37 * ms}, threadTimes{50 * ms, ms}), 0, 30 * ms},
		{"both ran", at(5*ms, threadTimes{108 * ms, 37 * ms}, threadTimes{70 * ms, ms}), 10 * ms, 20 * ms},
		{"a helper waited while the first one ran", at(5*ms, threadTimes{108 * ms, 7 * ms}, threadTimes{50 * ms, 9 * ms}), 0, 8 * ms},
		{"a helper waited for a stranger", at(5*ms, threadTimes{101 * ms, 7 * ms}, threadTimes{50 * ms, 9 * ms}), 7 * ms, ms},
		{"a thread that is new", at(5*ms, threadTimes{108 * ms, 7 * ms}, threadTimes{50 * ms, ms}, threadTimes{0, 20 * ms}), 12 * ms, 8 * ms},
	} {
		w := before.waited(tt.after)
		if w.others != tt.others || w.unclear != tt.unclear || !w.cpuKnown || !w.counted {
			t.Errorf("%s: got %+v, want others %s, unclear %s", tt.name, w, tt.others, tt.unclear)
		}
	}
	blind := at(0, threadTimes{108 * ms, 37 * ms}, threadTimes{50 * ms, ms})
	blind.cpuKnown = false
	if w := before.waited(blind); w.others != 0 || w.unclear != 30*ms || w.waitForOthers() != 30*ms || w.cpuKnown {
		t.Errorf("without a control group: %+v", w)
	}
	if w := before.waited(accounts{}); w != (wait{}) {
		t.Errorf("without accounts: %+v", w)
	}
}

// A kernel on a GPU goes on while its worker waits for a core.
func TestOthersAreTakenOffOnCoresOnly(t *testing.T) {
	for hasGPU, want := range map[bool]float64{false: 10e6, true: 40e6} {
		m := measuring{r: &phaseRun{s: &Session{hasGPU: hasGPU}, echo: []time.Duration{0}, strictEcho: []float64{0, 0, 0}}}
		a := attempt{answer: &answer{took: 40 * ms, wait: wait{counted: true, cpuKnown: true, others: 30 * ms}}}
		for range minStrict {
			if err := m.count(a, true); err != nil {
				t.Fatal(err)
			}
		}
		if m.strict[0] != want || (m.excess(true) > 0) != hasGPU {
			t.Errorf("with a GPU %v: %v ns, %v of it in doubt, want %v ns", hasGPU, m.strict[0], m.excess(true), want)
		}
	}
}

// A simulated machine: a call of some length is interrupted by slices of others, the
// more the longer it is, and the kernel's accounts say so.
type simulated struct {
	*rand.Rand
	load float64 // others that want each core
}

const slice = 3 * ms

// call simulates one call on an input of that cost.
func (s *simulated) call(cost time.Duration, strict bool) attempt {
	cost += time.Duration(float64(cost) * 0.02 * s.NormFloat64()) // caches
	var waited time.Duration
	for left := cost; s.load > 0; { // it runs for a slice, and then the others do
		ran := time.Duration(s.ExpFloat64() * float64(slice))
		if left -= ran; left <= 0 {
			break
		}
		waited += time.Duration(s.load * s.ExpFloat64() * float64(slice))
	}
	a := attempt{answer: &answer{took: cost + waited}}
	a.wait = wait{counted: true, cpuKnown: true, delayed: waited, firstWaited: waited, others: waited}
	if strict { // woken, and with cold caches
		a.took += time.Duration(s.ExpFloat64() * float64(50*time.Microsecond) * min(s.load, 1))
	} else if s.load > 0 && s.Float64() < 0.3 { // it waited already when it was released
		a.delayed += time.Duration(s.ExpFloat64() * float64(slice))
	}
	return a
}

// The interval of a figure covers the truth, whatever the inputs cost and however busy
// the machine is, or the run is ambiguous.
func TestFigureIsTrueOnABusyMachine(t *testing.T) {
	const runs = 400
	uniform := func(s *simulated) time.Duration { return ms + time.Duration(s.Float64()*float64(8*ms)) }
	for _, tt := range []struct {
		name string
		cost func(s *simulated) time.Duration
		mean time.Duration
	}{
		{"5 ms", func(*simulated) time.Duration { return 5 * ms }, 5 * ms},
		{"0.2 ms", func(*simulated) time.Duration { return ms / 5 }, ms / 5},
		{"1 to 9 ms", uniform, 5 * ms},
		{"0.2 or 10 ms", func(s *simulated) time.Duration {
			if s.IntN(2) == 0 {
				return ms / 5
			}
			return 10 * ms
		}, 5100 * time.Microsecond},
		{"4 ms and a tail", func(s *simulated) time.Duration {
			return 2*ms + time.Duration(s.ExpFloat64()*float64(2*ms))
		}, 4 * ms},
	} {
		for _, load := range []float64{0, 1, 5} {
			s := &simulated{rand.New(rand.NewPCG(1, uint64(load))), load}
			covered, ambiguous, off := 0, 0, 0.0
			for range runs {
				m := measuring{
					r:        &phaseRun{s: &Session{}, p: &plan.Phase{}, echo: []time.Duration{0}, strictEcho: []float64{0, 0, 0}},
					sampling: sampling{100, 10 * time.Second, 4 * time.Second, 0.01}, wall: 4 * time.Second, most: 60 * time.Second,
				}
				for clock := time.Duration(0); ; {
					strict := m.strictNext(clock)
					a := s.call(tt.cost(s), strict)
					clock += a.took + 20*ms // making and checking
					if err := m.count(a, strict); err != nil {
						t.Fatal(err)
					}
					if m.enough(clock) {
						break
					}
				}
				_, err := m.finish()
				if _, ok := errors.AsType[*ambiguousError](err); ok {
					ambiguous++
					continue
				}
				got := m.r.run.Measurements[0]
				off += figuresOf(got.Samples).mean/float64(tt.mean) - 1
				// Cold caches after a thaw are not the kernel's time: 50 µs on average here.
				if got.Interval[0]-float64(50*time.Microsecond) <= float64(tt.mean) && float64(tt.mean) <= got.Interval[1] {
					covered++
				}
			}
			// 93 to 98 of 100 are covered (three thousand runs of each). The bound leaves three for chance.
			if covered+ambiguous < runs*90/100 || ambiguous > runs/20 || math.Abs(off) > 0.1*float64(runs-ambiguous) {
				t.Errorf("%s at load %.0f: %d of %d covered, %d ambiguous, the mean is off by %.1f %%", tt.name, load, covered, runs, ambiguous, 100*off/float64(runs-ambiguous))
			}
		}
	}
}

// The calls are too short for strict calls to make the figure, and the costly ones are
// left out. The outcome is ambiguous: the cheap ones alone must not make the figure.
func TestShortUnequalCallsOnABusyMachine(t *testing.T) {
	m := measuring{r: &phaseRun{s: &Session{}, p: &plan.Phase{}, echo: []time.Duration{0}, strictEcho: []float64{0, 0, 0}}}
	call := func(took, waited time.Duration) attempt {
		return attempt{answer: &answer{took: took + waited, wait: wait{counted: true, cpuKnown: true, delayed: waited, firstWaited: waited}}}
	}
	for range 20 {
		for _, c := range []struct {
			a      attempt
			strict bool
		}{{call(ms/6, 0), false}, {call(ms, ms), false}, {call(ms/6, 0), true}, {call(ms*2/3, 0), true}} {
			if err := m.count(c.a, c.strict); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := m.finish()
	if busy, ok := errors.AsType[*ambiguousError](err); !ok || !busy.longer {
		t.Errorf("got %v, want an ambiguous outcome: the calls left out are six times as long", err)
	}
}

// A case is measured until it has the evidence that the task wants of a ranked figure. If
// there is no time for that, the outcome is ambiguous.
func TestEvidenceWanted(t *testing.T) {
	for _, tt := range []struct {
		want   schema.MinEvidence
		mode   string
		spread time.Duration
		runs   int // of which the figure is made, at least
		text   string
	}{
		{schema.MinEvidence{}, schema.ModeLeaderboard, 0, evidence, ""},
		{schema.MinEvidence{Runs: 150}, schema.ModeBenchmark, 0, evidence, ""},
		{schema.MinEvidence{Runs: 150}, schema.ModeLeaderboard, 0, 150, ""},
		{schema.MinEvidence{Width: 0.05}, schema.ModeLeaderboard, 4 * ms, 101, ""}, // about 330; the repeats end after 100
		{schema.MinEvidence{Runs: 1000}, schema.ModeLeaderboard, 0, 0, "calls count, and the task wants 1000"},
		{schema.MinEvidence{Width: 0.0001}, schema.ModeLeaderboard, 4 * ms, 0, "% of the mean, and the task wants at most 0.0 %"},
	} {
		p, most := &schema.Payload{Extension: schema.Extension{Evidence: tt.want}}, time.Minute
		if tt.text != "" {
			most = 12 * time.Second
		}
		m := measuring{
			r:        &phaseRun{s: &Session{o: Options{Payload: p}}, p: &plan.Phase{Mode: tt.mode}, echo: []time.Duration{0}, strictEcho: []float64{0, 0, 0}},
			sampling: sampling{100, 10 * time.Second, 4 * time.Second, 0.01}, wall: 4 * time.Second, most: most,
		}
		s := &simulated{rand.New(rand.NewPCG(1, 1)), 0}
		for clock := time.Duration(0); !m.enough(clock); clock += 20 * ms {
			strict := m.strictNext(clock)
			if err := m.count(s.call(5*ms+time.Duration((s.Float64()-0.5)*float64(tt.spread)), strict), strict); err != nil {
				t.Fatal(err)
			}
		}
		_, err := m.finish()
		if tt.text != "" {
			if busy, ok := errors.AsType[*ambiguousError](err); !ok || !strings.Contains(busy.Error(), tt.text) {
				t.Errorf("%+v: got %v, want an ambiguous outcome with %q", tt.want, err, tt.text)
			}
		} else if err != nil || len(m.r.run.Measurements[0].Samples) < tt.runs || tt.want.Width == 0 && len(m.r.run.Measurements[0].Samples) > 2*tt.runs+50 {
			t.Errorf("%+v in mode %s: %d calls (%v), want at least %d", tt.want, tt.mode, len(m.fast), err, tt.runs)
		}
	}
}

// A wait for one's own threads leaves no call out, and no more is subtracted than a call
// took.
func TestOwnWaitsHideNothing(t *testing.T) {
	m := measuring{r: &phaseRun{s: &Session{}, p: &plan.Phase{}, echo: []time.Duration{0}, strictEcho: []float64{0, 0, 0}}}
	for range 10 {
		a := attempt{answer: &answer{took: ms, wait: wait{counted: true, cpuKnown: true, delayed: ms / 10, unclear: ms / 10}}}
		if err := m.count(a, false); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.fast) != 10 || m.leftOut != 0 {
		t.Errorf("%d calls count and %d are left out, want 10 and 0", len(m.fast), m.leftOut)
	}
	all := measuring{waits: [2]waits{1: {took: 10 * ms, others: 10 * ms, doubt: ms}}}
	if doubt := all.excess(true); doubt != 1 {
		t.Errorf("all of the time was subtracted: %v of it in doubt, want 1", doubt)
	}
}
