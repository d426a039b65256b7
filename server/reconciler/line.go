package reconciler

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/queue"
)

var _ backend.Queue = (*Reconciler)(nil)

// lineCache keeps what is in line for a moment: all who wait ask where they are.
type lineCache struct {
	mu       sync.Mutex
	read     time.Time     // zero: not, or it has changed since
	took     time.Duration // to read it
	runs     []store.PlannedRun
	places   map[int64]place // by submission
	typical  map[string]time.Duration
	measured time.Time
}

// A place is where a submission stands that has not finished.
type place struct {
	first  *store.PlannedRun // of its runs in line
	before int               // runs that wait and go before it
	work   time.Duration     // what those take, and what is left of the runs under way
}

const (
	lineAge    = time.Second // at most, when nothing is known to have changed
	leastAge   = 200 * time.Millisecond
	lineShare  = 10 // of the time, one part at most is spent on reading a long line
	typicalAge = 30 * time.Second
	maxListed  = 100 // runs of a GPU type in its status
)

// forget makes the next reader read the line again.
func (c *lineCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) > max(leastAge, lineShare*c.took) {
		c.read = time.Time{}
	}
}

// get returns the line as it was a second ago at most, or longer where reading it
// takes long. It is not changed later.
func (r *Reconciler) get(ctx context.Context) (runs []store.PlannedRun, places map[int64]place, err error) {
	c := &r.line
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) < max(lineAge, lineShare*c.took) {
		return c.runs, c.places, nil
	}
	begun := time.Now()
	runs, err = r.o.Store.Line(ctx)
	if err != nil {
		return nil, nil, err
	}
	if places, err = r.placesIn(ctx, runs); err != nil {
		return nil, nil, err
	}
	c.runs, c.places, c.read, c.took = runs, places, time.Now(), time.Since(begun)
	return c.runs, c.places, nil
}

// placesIn finds where submissions stand. line.mu is held.
func (r *Reconciler) placesIn(ctx context.Context, runs []store.PlannedRun) (map[int64]place, error) {
	places, ahead := map[int64]place{}, map[string]place{}
	for i := range runs {
		p := &runs[i]
		d, err := r.typicalHeld(ctx, p.GPU, p.Mode)
		if err != nil {
			return nil, err
		}
		here := ahead[p.GPU]
		if _, seen := places[p.Submission]; !seen {
			places[p.Submission] = place{p, here.before, here.work}
		}
		if p.State == store.StatePlanned {
			here.before++
			here.work += d
		} else {
			here.work += max(d-time.Since(p.Started), 0) // what is left of it
		}
		ahead[p.GPU] = here
	}
	return places, nil
}

// row returns the fleet's row of a GPU type, which may be switched off; false: there
// is none.
func (r *Reconciler) row(gpu string) (pipelines.GPUType, bool) {
	row, err := r.o.Fleet.Lookup(gpu)
	_, off := errors.AsType[*pipelines.OffError](err)
	return row, err == nil || off
}

// typical is how long a run on a GPU type takes.
func (r *Reconciler) typical(ctx context.Context, gpu, mode string) (time.Duration, error) {
	r.line.mu.Lock()
	defer r.line.mu.Unlock()
	return r.typicalHeld(ctx, gpu, mode)
}

// typicalHeld is typical for those who hold line.mu.
func (r *Reconciler) typicalHeld(ctx context.Context, gpu, mode string) (time.Duration, error) {
	c := &r.line
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
	_, places, err := r.get(ctx)
	if err != nil {
		return backend.Wait{}, false, err
	}
	at, waits := places[submission]
	if !waits {
		return backend.Wait{}, false, nil
	}
	if at.first.State != store.StatePlanned {
		return backend.Wait{GPU: at.first.GPU, Running: true}, true, nil
	}
	return backend.Wait{GPU: at.first.GPU, Place: at.before, Expected: r.expected(at)}, true, nil
}

// expected is when a run may begin: the work before it over the machines; 0 where
// those are not known.
func (r *Reconciler) expected(at place) time.Duration {
	row, known := r.row(at.first.GPU)
	if !known || row.Off != "" {
		return 0
	}
	serving, known := r.machines.serving(row.Queue)
	if !known || serving.Agents == 0 {
		return 0
	}
	return at.work / time.Duration(serving.Agents)
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

// machines is what is known of the agents on each queue. All of them are listed at
// once, which costs a request for each hundred.
type machines struct {
	mu      sync.Mutex
	asked   time.Time
	asking  bool
	known   bool      // the token may list agents, and did
	listed  time.Time // when it did last
	byQueue map[string]launcher.Serving
}

const (
	machinesAge      = time.Minute      // after which agents are listed again
	machinesPatience = 10 * time.Second // for the first list
	machinesKept     = 15 * time.Minute // that a list is good for when newer ones fail
)

// serving returns what is known of a queue's agents; false: nothing.
func (m *machines) serving(queue string) (launcher.Serving, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byQueue[queue], m.known
}

// refresh lists the agents again, beside, when the list is old. The first time it
// waits for it.
func (r *Reconciler) refresh(ctx context.Context) {
	m := &r.machines
	m.mu.Lock()
	first := m.asked.IsZero()
	if m.asking || !first && time.Since(m.asked) < machinesAge {
		m.mu.Unlock()
		return
	}
	m.asking, m.asked = true, time.Now()
	m.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		asking, stop := context.WithTimeout(context.WithoutCancel(ctx), machinesAge/2)
		defer stop()
		agents, err := r.o.Launcher.Agents(asking)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.asking = false
		if err != nil {
			api, ok := errors.AsType[*launcher.APIError](err)
			refused := ok && (api.Status == http.StatusUnauthorized || api.Status == http.StatusForbidden)
			m.known = m.known && !refused && time.Since(m.listed) < machinesKept
			r.o.Log.Warn("listing agents", "error", err, "numbers_kept", m.known)
			return
		}
		m.known, m.listed, m.byQueue = true, time.Now(), launcher.ByQueue(agents)
		r.Wake()
	}()
	if first {
		select {
		case <-done:
		case <-ctx.Done():
		case <-time.After(machinesPatience):
		}
	}
}

// room says how many builds of each GPU type may be under way. Where nothing is sent,
// none may: its runs wait until it is switched on.
func (r *Reconciler) room(ctx context.Context) map[string]int {
	gpus := map[string]bool{}
	runs, _, _ := r.get(ctx) // none if they cannot be read
	for i := range runs {
		gpus[runs[i].GPU] = true
	}
	if len(gpus) > 0 { // nobody is asked for nothing
		r.refresh(ctx)
	}
	for _, row := range r.o.Fleet {
		gpus[row.Name] = true // what is in line may be old
	}
	room := map[string]int{}
	for gpu := range gpus {
		row, known := r.row(gpu)
		switch {
		case !known:
			room[gpu] = r.o.Room // they end at once, saying why
		case row.Off == "":
			room[gpu] = r.places(row.Queue)
		}
	}
	return room
}

// places returns how many builds a queue may have: [queue.Places] of its agents, or
// Room if their number is not known.
func (r *Reconciler) places(name string) int {
	if s, known := r.machines.serving(name); known {
		return queue.Places(s.Agents)
	}
	return r.o.Room
}
