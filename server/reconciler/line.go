package reconciler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
)

var _ backend.Queue = (*Reconciler)(nil)

// lineCache keeps what is in line for a moment: all who wait ask where they are.
type lineCache struct {
	mu       sync.Mutex
	read     time.Time // zero: not, or it has changed since
	runs     []store.PlannedRun
	place    map[int64]int // of a submission's first run among those that wait on its GPU type
	typical  map[string]time.Duration
	measured time.Time
	gpus     []string // in line
}

const (
	lineAge    = time.Second // at most, when nothing is known to have changed
	leastAge   = 200 * time.Millisecond
	typicalAge = 30 * time.Second
	maxListed  = 100 // runs of a GPU type in its status
)

// forget makes the next reader read the line again.
func (c *lineCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) > leastAge {
		c.read = time.Time{}
	}
}

// get returns the line as it was at most a second ago. It is not changed later.
func (r *Reconciler) get(ctx context.Context) (runs []store.PlannedRun, place map[int64]int, err error) {
	c := &r.line
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) < lineAge {
		return c.runs, c.place, nil
	}
	runs, err = r.o.Store.Line(ctx)
	if err != nil {
		return nil, nil, err
	}
	c.runs, c.place, c.read, c.gpus = runs, map[int64]int{}, time.Now(), nil
	waiting := map[string]int{}
	for _, p := range runs {
		if !slices.Contains(c.gpus, p.GPU) {
			c.gpus = append(c.gpus, p.GPU)
		}
		if p.State != store.StatePlanned {
			continue
		}
		if _, seen := c.place[p.Submission]; !seen {
			c.place[p.Submission] = waiting[p.GPU]
		}
		waiting[p.GPU]++
	}
	return c.runs, c.place, nil
}

// inLine are the GPU types that runs wait for or run on.
func (r *Reconciler) inLine(ctx context.Context) []string {
	if _, _, err := r.get(ctx); err != nil {
		return nil
	}
	r.line.mu.Lock()
	defer r.line.mu.Unlock()
	return r.line.gpus
}

// row returns the fleet's row of a GPU type, which may be switched off; false: there
// is none.
func (r *Reconciler) row(gpu string) (pipelines.GPUType, bool) {
	row, err := r.o.Fleet.Lookup(gpu)
	var off *pipelines.OffError
	return row, err == nil || errors.As(err, &off)
}

// typical is how long a run on a GPU type takes.
func (r *Reconciler) typical(ctx context.Context, gpu, mode string) (time.Duration, error) {
	c := &r.line
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.typical == nil || time.Since(c.measured) > typicalAge {
		c.typical, c.measured = map[string]time.Duration{}, time.Now()
	}
	key := gpu + "\x00" + mode
	d, known := c.typical[key]
	if !known {
		var err error
		if d, err = r.o.Store.Typical(ctx, gpu, mode); err != nil {
			return 0, err
		}
		c.typical[key] = d
	}
	return d, nil
}

// Wait says where a submission stands.
func (r *Reconciler) Wait(ctx context.Context, submission int64) (backend.Wait, bool, error) {
	runs, places, err := r.get(ctx)
	if err != nil {
		return backend.Wait{}, false, err
	}
	var first *store.PlannedRun
	for i := range runs {
		if runs[i].Submission == submission {
			first = &runs[i]
			break
		}
	}
	if first == nil {
		return backend.Wait{}, false, nil
	}
	w := backend.Wait{GPU: first.GPU, Running: first.State != store.StatePlanned}
	if w.Running {
		return w, true, nil
	}
	w.Place = places[submission]
	w.Expected, err = r.expected(ctx, runs, first, w.Place)
	return w, true, err
}

// expected is when a run that so many go before may begin: that many over the
// machines, each taking what such runs took lately.
func (r *Reconciler) expected(ctx context.Context, runs []store.PlannedRun, run *store.PlannedRun, before int) (time.Duration, error) {
	row, known := r.row(run.GPU)
	if !known || row.Off != "" {
		return 0, nil
	}
	serving, known := r.machines.serving(row.Queue)
	if !known || serving.Agents == 0 {
		return 0, nil
	}
	var ahead time.Duration
	counted := 0
	for i := range runs {
		p := &runs[i]
		if p.GPU != run.GPU || p.State == store.StatePlanned && counted >= before {
			continue
		}
		d, err := r.typical(ctx, p.GPU, p.Mode)
		if err != nil {
			return 0, err
		}
		if p.State == store.StatePlanned {
			counted++
		} else {
			d = max(d-time.Since(p.Started), 0) // what is left of it
		}
		ahead += d
	}
	return ahead / time.Duration(serving.Agents), nil
}

// Status lists the lines of all GPU types that boards have, in the fleet's order.
func (r *Reconciler) Status(ctx context.Context) ([]backend.GPUStatus, error) {
	runs, _, err := r.get(ctx)
	if err != nil {
		return nil, err
	}
	gpus, err := r.o.Store.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	r.refresh(ctx)
	order := func(gpu string) int {
		if i := slices.IndexFunc(r.o.Fleet, func(g pipelines.GPUType) bool { return g.Name == gpu }); i >= 0 {
			return i
		}
		return len(r.o.Fleet)
	}
	slices.SortStableFunc(gpus, func(a, b string) int { return order(a) - order(b) })
	var all []backend.GPUStatus
	for _, gpu := range gpus {
		s := backend.GPUStatus{GPU: gpu}
		if row, found := r.row(gpu); found {
			s.Queue, s.Off = row.Queue, row.Off
			serving, known := r.machines.serving(row.Queue)
			s.Known, s.Agents, s.Busy, s.Paused = known, serving.Agents, serving.Busy, serving.Paused
		} else {
			s.Off = "no machines serve it here"
		}
		if err := r.fill(ctx, &s, runs); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// fill counts and lists the runs of one GPU type.
func (r *Reconciler) fill(ctx context.Context, s *backend.GPUStatus, runs []store.PlannedRun) error {
	modes := map[string]int{}
	for i := range runs {
		p := &runs[i]
		if p.GPU != s.GPU {
			continue
		}
		q := backend.QueuedRun{Submission: p.Submission, UserID: p.UserID, Board: p.Board, Mode: p.Mode, Secret: p.Secret, Running: p.State != store.StatePlanned, Since: p.Created}
		modes[p.Mode]++
		if q.Running {
			s.Running++
			q.Since = p.Started
		} else {
			s.Waiting++
		}
		if len(s.Runs) < maxListed {
			s.Runs = append(s.Runs, q)
		}
	}
	most := "test"
	for mode, n := range modes {
		if n > modes[most] {
			most = mode
		}
	}
	var err error
	s.Typical, err = r.typical(ctx, s.GPU, most)
	return err
}
