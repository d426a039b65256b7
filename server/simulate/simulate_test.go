package simulate

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/launcher/pace"
)

// options are those of a small competition with a rush.
func options(change func(*Options)) Options {
	o := Options{Users: 100, GPUs: []GPUs{{"H100", 4}, {"B200", 2}}, Hours: 3, Rush: 8, Submissions: 3, Ranked: 0.5, Evaluation: time.Minute, Spread: 2, Failures: 0.02,
		Limit: 1000, Creating: 64}
	if change != nil {
		change(&o)
	}
	return o
}

func simulated(t *testing.T, o Options, seed uint64) *Report {
	t.Helper()
	r, err := Run(t.Context(), o, rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSameSeedGivesTheSameReport(t *testing.T) {
	a, b, c := simulated(t, options(nil), 1), simulated(t, options(nil), 1), simulated(t, options(nil), 2)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("two simulations with one seed differ:\n%+v\n%+v", a, b)
	}
	if reflect.DeepEqual(a, c) {
		t.Error("another seed gives the same report")
	}
}

// Agents that are never idle do all the work in the time that it takes, and those who
// come first do not wait.
func TestWaitsFollowFromTheWork(t *testing.T) {
	var arrivals []Arrival
	for range 40 {
		arrivals = append(arrivals, Arrival{User: "1", GPU: "H100", Took: time.Minute})
	}
	o := options(func(o *Options) {
		o.GPUs, o.Arrivals, o.Failures = []GPUs{{"H100", 4}}, arrivals, 0
		o.Delays = Delays{Answer: 1, Setup: 1, Agent: 1, Event: 1, Claim: 1}
	})
	r := simulated(t, o, 1)
	if r.Runs != 40 || r.Wait.Longest < 9*60 || r.Wait.Longest > 9*60+30 {
		t.Errorf("the last of 40 runs of a minute on 4 GPUs waited %.0f s, want 9 minutes and little more: %+v", r.Wait.Longest, r)
	}
}

func TestRateLimitHolds(t *testing.T) {
	r := simulated(t, options(func(o *Options) {
		o.GPUs, o.Users, o.Submissions, o.Hours, o.Rush = []GPUs{{"H100", 100}}, 200, 2, 0.02, 1
	}), 1)
	if r.MostCalls > pace.DefaultLimit || r.MostCalls < pace.DefaultLimit/2 {
		t.Errorf("%d requests in the busiest minute, want the most of %d and no more", r.MostCalls, pace.DefaultLimit)
	}
	if r.MostWorking == 0 || r.Failed != 0 && r.Failed > r.Runs/1000 {
		t.Errorf("%+v", r)
	}
}

func TestRushRaisesTheRate(t *testing.T) {
	for _, rush := range []float64{1, 8} {
		first, last := moment(0.001, rush), 1-moment(0.999, rush)
		if got := first / last; math.Abs(got-rush) > 0.05*rush || moment(1, rush) != 1 {
			t.Errorf("rush %g: submissions at the end are %.2f times as frequent", rush, got)
		}
	}
}

// Each shortage is named with its figures, and without one there is none.
func TestChangesNameTheShortage(t *testing.T) {
	enough := Report{GPUs: []GPU{{Name: "H100", Number: 100, Need: 90}}, Limit: 1000, CallsLimit: 12_000, CallsSteady: 8_400, CallsEach: 1.2, Busiest: Hour{Planned: 7_000}}
	if got := enough.changes(); len(got) != 0 {
		t.Errorf("got %v, want nothing to change", got)
	}
	for want, change := range map[string]func(*Report){
		"gpus: H100: the busiest hour brings work for 95 GPUs, there are 100: at least 106 GPUs,": func(r *Report) { r.GPUs = []GPU{{Name: "H100", Number: 100, Need: 94.6}} },
		"calls: REST calls: the busiest hour needs 17,400, kbserve sends at most 8,400 of the 12,000 that an organization may: at least 3 organizations": func(r *Report) {
			r.Busiest.Planned = 14_500
		},
		"limit: kbserve: it works on 100 runs at once, and the GPUs have places for 150: at least 2 instances": func(r *Report) { r.Limit, r.LimitedFor = 100, 100 },
		"queue: queue: 50,000 runs waited at once, and each claim reads all of them, in about 350 ms":          func(r *Report) { r.MostWaiting = 50_000 },
		"database: database: 500 transactions a second":                                                        func(r *Report) { r.Busiest.Transactions = 500 * 3600 },
	} {
		short := enough
		change(&short)
		if got := short.changes(); len(got) != 1 || !strings.HasPrefix(got[0].What+": "+got[0].Found+": "+got[0].Do, want) {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"users":     func(o *Options) { o.Users = 0 },
		"no GPUs":   func(o *Options) { o.GPUs = nil },
		"GPUs: got": func(o *Options) { o.GPUs[0].Number = 0 },
		"twice":     func(o *Options) { o.GPUs[1].Name = "H100" },
		"rush":      func(o *Options) { o.Rush = 0.5 },
		"failures":  func(o *Options) { o.Failures = math.NaN() },
		"missing":   func(o *Options) { o.Arrivals = []Arrival{{GPU: "A100"}} },
	} {
		if _, err := Run(t.Context(), options(change), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Run(ctx, options(nil), rand.New(rand.NewPCG(1, 0))); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
