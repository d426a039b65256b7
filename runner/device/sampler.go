package device

import (
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// SampleInterval is the time between two samples of a device. Asking costs the
// driver about a millisecond.
const SampleInterval = 200 * time.Millisecond

// startSampling reads files while a phase runs, until stop is called, which returns what
// was seen.
func startSampling(r reader, interval time.Duration) (stop func() []schema.Sampling) {
	quit, done := make(chan struct{}), make(chan []schema.Sampling, 1)
	go func() { // ends with stop
		var seen counters
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for seen.add(r.samples()); ; {
			select {
			case <-ticker.C:
				seen.add(r.samples())
			case <-quit:
				seen.add(r.samples())
				done <- seen.sum()
				return
			}
		}
	}()
	return func() []schema.Sampling {
		close(quit)
		return <-done
	}
}
