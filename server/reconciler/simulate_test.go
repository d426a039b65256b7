package reconciler

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/local"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/server/simulate"
)

// The simulation predicts what kbserve does over the stand-in, for submissions that
// come faster than the GPUs evaluate and than the rate limit allows: waiting times
// within 15 % or 2 s, and REST calls within 10 %.
func TestSlowSimulationAgreesWithTheStandIn(t *testing.T) {
	testenv.NeedSlow(t)
	const submissions, users, agents, hours = 120, 12, 6, 0.004 // 14 s
	const took = 1500 * time.Millisecond
	random := rand.New(rand.NewPCG(1, 2))
	var arrivals []simulate.Arrival
	for range submissions {
		arrivals = append(arrivals, simulate.Arrival{At: time.Duration(random.Float64() * hours * float64(time.Hour)), User: fmt.Sprint(1 + random.IntN(users)), GPU: "H100", Took: took})
	}
	slices.SortFunc(arrivals, func(a, b simulate.Arrival) int { return int(a.At - b.At) })
	const moment = 10 * time.Millisecond
	predicted, err := simulate.Run(t.Context(), simulate.Options{Users: users, GPUs: []simulate.GPUs{{Name: "H100", Number: agents}}, Hours: hours, Arrivals: arrivals, Limit: DefaultLimit, Creating: MaxCreating,
		Delays: simulate.Delays{Answer: moment, Setup: moment, Agent: 2 * moment, Event: moment, Claim: 2 * moment}}, random)
	if err != nil {
		t.Fatal(err)
	}

	r := newRigOver(t, servertest.SQLite(t), local.Options{RateLimits: true, UserLimit: 200}, nil)
	var mu sync.Mutex
	var waits []time.Duration
	began := map[string]time.Time{} // by run
	r.agents(agents, func(run string) {
		mu.Lock()
		began[run] = time.Now()
		mu.Unlock()
		time.Sleep(took)
	}, func(run string) { r.Hint(context.Background(), run) })
	r.run()
	begin := time.Now()
	var ids []int64
	at := map[int64]time.Time{}
	for _, a := range arrivals {
		time.Sleep(time.Until(begin.Add(a.At)))
		id := r.submit(a.User)
		ids, at[id] = append(ids, id), time.Now()
	}
	for range submissions {
		r.await(Recorded)
	}
	for _, id := range ids {
		runs, err := r.s.PlannedRuns(context.Background(), id)
		if err != nil || len(runs) != 1 {
			t.Fatal(runs, err)
		}
		waits = append(waits, began[runs[0].RunID].Sub(at[id]))
	}
	slices.Sort(waits)
	calls := r.o.Launcher.Calls()
	got := simulate.Times{Median: waits[len(waits)/2].Seconds(), Most: waits[len(waits)*95/100].Seconds(), Longest: waits[len(waits)-1].Seconds()}
	t.Logf("waits: simulated %+v, got %+v", predicted.Wait, got)
	t.Logf("REST calls: simulated %d, got %s", predicted.Busiest.Calls, calls)
	for name, v := range map[string][2]float64{"median": {predicted.Wait.Median, got.Median}, "95th percentile": {predicted.Wait.Most, got.Most}} {
		if off := math.Abs(v[0] - v[1]); off > max(0.15*v[1], 2) {
			t.Errorf("%s of the waits: simulated %.1f s, got %.1f s", name, v[0], v[1])
		}
	}
	if off := math.Abs(float64(predicted.Busiest.Calls - calls.Total)); off > 0.1*float64(calls.Total) {
		t.Errorf("REST calls: simulated %d, got %d", predicted.Busiest.Calls, calls.Total)
	}
}

// agents starts agents that call work with each run, and ended when its build is over.
func (r *rig) agents(n int, work, ended func(run string)) {
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	r.t.Cleanup(func() {
		stop()
		group.Wait()
	})
	for range n {
		last := ""
		group.Go(func() {
			err := evaluator(ctx, r.standIn.Engine, func(run, gpu, queue, mode string) *schema.Result {
				work(run)
				last = run
				return passed(run, gpu, queue, mode)
			}, func() { ended(last) })
			if err != nil {
				r.t.Error(err)
			}
		})
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if connected := r.standIn.Engine.Agents(); len(connected) == n {
			return
		} else if time.Now().After(deadline) {
			r.t.Fatalf("%d agents are connected, want %d", len(connected), n)
		}
	}
}
