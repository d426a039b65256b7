package simulate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/launcher/pace"
	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/store/queue"
)

// A Report says how the simulated competition went. Durations are in seconds.
type Report struct {
	Users       int     `json:"users"`
	Hours       float64 `json:"hours"`
	Submissions int     `json:"submissions"`
	Runs        int     `json:"runs"`
	Failed      int     `json:"failed"` // runs that no machine finished

	Wait   Times `json:"wait"`   // of a run, from its submission until its evaluation starts
	Result Times `json:"result"` // of a submission, until all of its results are recorded
	GPUs   []GPU `json:"gpus"`

	MostWaiting int     `json:"most_waiting"` // runs in kbserve's queue
	MostWorking int     `json:"most_working"` // runs that kbserve worked on at once
	Limit       int     `json:"limit"`        // for MostWorking
	LimitedFor  float64 `json:"limited_for"`  // how long that limit held runs back that had a place

	Busiest     Hour    `json:"busiest_hour"` // the most of each figure in any hour
	CallsEach   float64 `json:"calls_each"`   // REST calls for a run, in the hour with the most builds
	CallsLimit  int     `json:"calls_limit"`  // of an organization, per hour
	CallsSteady int     `json:"calls_steady"` // what kbserve sends of that at most
	MostCalls   int     `json:"most_calls_a_minute"`
	ListedEach  float64 `json:"listed_each"` // how often a list repeats a run's build, with its payload

	ByHour  []Hour   `json:"by_hour"` // until all was done
	Changes []Change `json:"changes"` // what would have to change so that nothing holds runs back
}

// Times are durations of many, in seconds.
type Times struct {
	Median  float64 `json:"median"`
	Most    float64 `json:"p95"` // 95 % are no longer
	Longest float64 `json:"longest"`
}

// A GPU is the machines of one type.
type GPU struct {
	Name   string  `json:"gpu_type"`
	Number int     `json:"gpus"`
	Runs   int     `json:"runs"`
	Use    float64 `json:"use"`         // share of the time that users submit
	Peak   float64 `json:"busiest_use"` // in the busiest hour
	Need   float64 `json:"need"`        // GPUs that the runs of the busiest hour of arrivals keep busy
	Wait   Times   `json:"wait"`
}

// An Hour has the figures of one hour.
type Hour struct {
	Submissions  int     `json:"submissions"`
	Planned      int     `json:"planned"`      // runs that arrived
	Builds       int     `json:"builds"`       // that were made, and webhook events
	Calls        int     `json:"calls"`        // REST requests
	CallWait     float64 `json:"call_wait"`    // seconds that a request waited for the limiter, on average
	Transactions int     `json:"transactions"` // that change the database
}

// A Change is something that would have to change.
type Change struct {
	What  string `json:"what"` // gpus, calls, limit, queue, database
	Found string `json:"found"`
	Do    string `json:"do"`
}

// A ledger holds what was counted.
type ledger struct {
	hours   []*hour
	use     map[int][]time.Duration // by GPU type and hour
	waiting int
	longest int // the most that waited
	working int // the most that were worked on
	limited time.Duration
	listed  int // builds in all lists
}

type hour struct {
	submissions, planned, builds, calls, transactions int
	work, restWait                                    time.Duration
}

func (l *ledger) hour(now time.Duration) *hour {
	i := int(now / time.Hour)
	for len(l.hours) <= i {
		l.hours = append(l.hours, &hour{})
	}
	return l.hours[i]
}

// busy counts that an agent is busy from now on.
func (l *ledger) busy(gpu int, now, took time.Duration) {
	if l.use == nil {
		l.use = map[int][]time.Duration{}
	}
	for took > 0 {
		i := int(now / time.Hour)
		for len(l.use[gpu]) <= i {
			l.use[gpu] = append(l.use[gpu], 0)
		}
		part := min(took, time.Duration(i+1)*time.Hour-now)
		l.use[gpu][i] += part
		now, took = now+part, took-part
	}
}

// times sorts d.
func times(d []time.Duration) Times {
	if len(d) == 0 {
		return Times{}
	}
	slices.Sort(d)
	at := func(part float64) float64 {
		return d[min(int(part*float64(len(d))), len(d)-1)].Seconds()
	}
	return Times{at(0.5), at(0.95), at(1)}
}

func (s *simulation) report(submissions []*submission) *Report {
	r := &Report{Users: s.o.Users, Hours: s.o.Hours, Submissions: len(submissions), MostWaiting: s.log.longest, MostWorking: s.log.working, Limit: s.o.Limit,
		LimitedFor: s.log.limited.Seconds(), CallsLimit: pace.DefaultLimit * int(time.Hour/pace.Window), CallsSteady: pace.Steady(pace.DefaultLimit), MostCalls: s.rest.most,
		ByHour: []Hour{}, Changes: []Change{}}
	var waits, results []time.Duration
	byGPU, work := make([][]time.Duration, len(s.o.GPUs)), map[[2]int]time.Duration{}
	for _, sub := range submissions {
		results = append(results, sub.done-sub.at)
		for _, one := range sub.runs {
			waits = append(waits, one.started-sub.at)
			byGPU[one.gpu] = append(byGPU[one.gpu], one.started-sub.at)
			work[[2]int{one.gpu, int(sub.at / time.Hour)}] += one.work()
			if one.broken {
				r.Failed++
			}
		}
	}
	r.Runs, r.Wait, r.Result = len(waits), times(waits), times(results)
	for _, h := range s.log.hours {
		one := Hour{h.submissions, h.planned, h.builds, h.calls, h.restWait.Seconds() / float64(max(h.calls, 1)), h.transactions}
		r.ByHour = append(r.ByHour, one)
		b := &r.Busiest
		if one.Builds > b.Builds {
			r.CallsEach = float64(one.Calls) / float64(one.Builds)
		}
		b.Submissions, b.Planned, b.Builds, b.Calls = max(b.Submissions, one.Submissions), max(b.Planned, one.Planned), max(b.Builds, one.Builds), max(b.Calls, one.Calls)
		b.CallWait, b.Transactions = max(b.CallWait, one.CallWait), max(b.Transactions, one.Transactions)
	}
	r.ListedEach = float64(s.log.listed) / float64(r.Runs)
	for i, g := range s.o.GPUs {
		one := GPU{Name: g.Name, Number: g.Number, Runs: len(byGPU[i]), Wait: times(byGPU[i])}
		var whole time.Duration
		for h, busy := range s.log.use[i] {
			// The last hour may be a part of one; what is busy after it is not counted.
			part := min(s.o.Hours-float64(h), 1)
			if part <= 0 {
				break
			}
			whole += min(busy, time.Duration(part*float64(g.Number)*float64(time.Hour)))
			one.Peak = max(one.Peak, min(busy.Hours()/part/float64(g.Number), 1))
			one.Need = max(one.Need, work[[2]int{i, h}].Hours()/part)
		}
		one.Use = whole.Hours() / s.o.Hours / float64(g.Number)
		r.GPUs = append(r.GPUs, one)
	}
	r.Changes = append(r.Changes, r.changes()...)
	return r
}

// Above these, something would have to change.
const (
	mostUse = 0.9 // of the GPUs: near 1, every burst makes a long queue

	// What kbserve's database does, as docs/measurements.md has it: SQLite takes 600
	// transactions a second on two cores, of which half is for readers; a claim reads
	// each run that waits, in 7 µs.
	mostTransactions = 300 // a second
	claimEach        = 7 * time.Microsecond
	longClaim        = 200 * time.Millisecond
)

// changes derives what would have to change from the figures.
func (r *Report) changes() (all []Change) {
	add := func(what, found, do string) { all = append(all, Change{what, found, do}) }
	places := 0
	for _, g := range r.GPUs {
		places += queue.Places(g.Number)
		if g.Need > mostUse*float64(g.Number) {
			add("gpus", fmt.Sprintf("%s: the busiest hour brings work for %.0f GPUs, there are %s", g.Name, math.Ceil(g.Need), format.Number(g.Number)),
				fmt.Sprintf("at least %s GPUs, or fewer submissions per user and hour", format.Number(int(math.Ceil(g.Need/mostUse)))))
		}
	}
	if wanted := int(float64(r.Busiest.Planned) * r.CallsEach); wanted > r.CallsSteady {
		shards := (wanted + r.CallsSteady - 1) / r.CallsSteady
		add("calls", fmt.Sprintf("REST calls: the busiest hour needs %s, kbserve sends at most %s of the %s that an organization may",
			format.Number(wanted), format.Number(r.CallsSteady), format.Number(r.CallsLimit)),
			fmt.Sprintf("at least %d organizations, or %d runs in one build", shards, shards))
	}
	if r.LimitedFor >= time.Minute.Seconds() {
		add("limit", fmt.Sprintf("kbserve: it works on %s runs at once, and the GPUs have places for %s", format.Number(r.Limit), format.Number(places)),
			fmt.Sprintf("at least %d instances of kbserve on PostgreSQL", (places+r.Limit-1)/r.Limit))
	}
	if claim := time.Duration(r.MostWaiting) * claimEach; claim > longClaim {
		add("queue", fmt.Sprintf("queue: %s runs waited at once, and each claim reads all of them, in about %s", format.Number(r.MostWaiting), format.Duration(claim)),
			"fewer submissions per user and hour")
	}
	if rate := r.Busiest.Transactions / 3600; rate > mostTransactions {
		add("database", fmt.Sprintf("database: %s transactions a second, one SQLite file takes about %s beside its readers", format.Number(rate), format.Number(mostTransactions)),
			"PostgreSQL")
	}
	return all
}
