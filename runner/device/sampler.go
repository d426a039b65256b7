package device

import (
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// SampleInterval is the time between two samples of a device. Asking costs the
// driver about a millisecond.
const SampleInterval = 200 * time.Millisecond

// A sampler reads files while a phase runs.
type sampler struct {
	quit chan struct{}
	done chan []schema.Sampling
}

func startSampler(r reader, interval time.Duration) *sampler {
	s := &sampler{quit: make(chan struct{}), done: make(chan []schema.Sampling, 1)}
	go func() { // ends with stop
		var seen counters
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for seen.add(r.samples()); ; {
			select {
			case <-ticker.C:
				seen.add(r.samples())
			case <-s.quit:
				seen.add(r.samples())
				s.done <- seen.sum()
				return
			}
		}
	}()
	return s
}

func (s *sampler) stop() []schema.Sampling {
	close(s.quit)
	return <-s.done
}
