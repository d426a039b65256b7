package reconciler

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
)

// machines is what is known of the agents on each queue. All of them are listed at
// once, which costs a request for each hundred.
type machines struct {
	mu      sync.Mutex
	asked   time.Time
	asking  bool
	known   bool // the token may list agents, and did
	byQueue map[string]launcher.Serving
}

const (
	machinesAge      = time.Minute      // after which agents are listed again
	machinesPatience = 10 * time.Second // for the first list
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
		m.asking, m.known = false, err == nil
		if err != nil {
			r.o.Log.Warn("listing agents: how many machines there are is not known", "error", err)
			return
		}
		m.byQueue = launcher.ByQueue(agents)
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
	gpus := slices.Clone(r.inLine(ctx))
	if len(gpus) > 0 { // nobody is asked for nothing
		r.refresh(ctx)
	}
	for _, row := range r.o.Fleet {
		gpus = append(gpus, row.Name) // what is in line may be old
	}
	room := map[string]int{}
	for _, gpu := range gpus {
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

// places is how many builds a queue may have: a few more than there are machines, so
// that none waits for the next.
func (r *Reconciler) places(queue string) int {
	if s, known := r.machines.serving(queue); known {
		return s.Agents + max(2, s.Agents/2)
	}
	return r.o.Room
}
