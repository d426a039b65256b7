package simulate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store/queue"
)

// A submission arrives, and is done when its runs are.
type submission struct {
	at, done time.Duration
	runs     []*run
	open     int // of runs
}

// A run is one evaluation. What chance decides is drawn before the simulation begins,
// so that two simulations with other options see the same submissions.
type run struct {
	of       *submission
	id       string
	share    queue.Share
	gpu      int // in Options.GPUs
	priority int // in kbserve's queue
	job      int // priority of its job at Buildkite
	large    bool
	attempts []time.Duration // on the GPU; all but the last end by a fault of the machine
	broken   bool            // so does the last: the run has no result

	created                 time.Time
	claimed, started, ended time.Duration
	taken                   bool
	tried                   int // attempts that were started
}

// queued describes the run to the queue.
func (r *run) queued() queue.Run {
	return queue.Run{Share: r.share, ID: r.id, Priority: r.priority, Created: r.created}
}

// work is the time that the run takes on GPUs.
func (r *run) work() (d time.Duration) {
	for _, a := range r.attempts {
		d += a
	}
	return d
}

// A kind is a mode of runs and its priorities.
type kind struct{ priority, job int }

func kindOf(mode, job string) kind {
	p, _ := pipelines.Priority(job)
	return kind{pipelines.Precedence(mode), p}
}

// arrivals draws all submissions, in the order of their arrival.
func arrivals(o Options, random Random) []*submission {
	given := o.Arrivals
	if len(given) == 0 {
		given = drawn(o, random)
	}
	test, public := kindOf(schema.ModeTest, schema.ModeTest), kindOf(schema.ModeLeaderboard, schema.ModeLeaderboard)
	secret := kindOf(schema.ModeLeaderboard, schema.ModePrivate)
	tries := pipelines.RetryMachine.Tries("")
	all := make([]*submission, len(given))
	for i, a := range given {
		s := &submission{at: a.At}
		kinds := []kind{test}
		if a.Ranked {
			kinds = []kind{public, secret}
		}
		gpu := slices.IndexFunc(o.GPUs, func(g GPUs) bool { return g.Name == a.GPU })
		for j, k := range kinds {
			r := &run{of: s, id: fmt.Sprintf("%07d-%d", i, j), share: queue.Share{User: a.User, GPU: a.GPU}, gpu: gpu, priority: k.priority, job: k.job, large: random.Float64() < o.Large}
			r.try(a.Took, o.Failures, tries, random)
			s.runs = append(s.runs, r)
		}
		s.open = len(s.runs)
		all[i] = s
	}
	slices.SortStableFunc(all, func(a, b *submission) int { return cmp.Compare(a.at, b.at) })
	return all
}

// drawn draws arrivals, in no order.
func drawn(o Options, random Random) []Arrival {
	// Some users submit much more often than others.
	users := make([]float64, o.Users)
	sum := 0.0
	for i := range users {
		sum += random.ExpFloat64()
		users[i] = sum
	}
	gpus := make([]float64, len(o.GPUs))
	machines := 0.0
	for i, g := range o.GPUs {
		machines += float64(g.Number)
		gpus[i] = machines
	}
	draw := func(sums []float64) int {
		return min(sort.SearchFloat64s(sums, random.Float64()*sums[len(sums)-1]), len(sums)-1)
	}
	sigma := math.Log(o.Spread) / quantile95
	all := make([]Arrival, int(math.Round(float64(o.Users)*o.Submissions)))
	for i := range all {
		all[i] = Arrival{
			At:   time.Duration(moment(random.Float64(), o.Rush) * o.Hours * float64(time.Hour)),
			User: strconv.Itoa(draw(users)), GPU: o.GPUs[draw(gpus)].Name, Ranked: random.Float64() < o.Ranked,
			Took: time.Duration(float64(o.Evaluation) * math.Exp(sigma*random.NormFloat64())),
		}
	}
	return all
}

// quantile95 is the 95th percentile of the standard normal distribution.
const quantile95 = 1.6449

// try draws how often a machine fails during an evaluation that takes so long.
func (r *run) try(took time.Duration, failures float64, tries int, random Random) {
	for range tries {
		if random.Float64() >= failures {
			r.attempts = append(r.attempts, took)
			return
		}
		r.attempts = append(r.attempts, time.Duration(random.Float64()*float64(took)))
	}
	r.broken = true
}

// moment maps an even random number to the part of the time that has passed, so that
// the rate rises exponentially, at the end to rush times that of the beginning.
func moment(even, rush float64) float64 {
	if rush == 1 {
		return even
	}
	return math.Log1p(even*(rush-1)) / math.Log(rush)
}
