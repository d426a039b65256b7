package device

import (
	"slices"

	"github.com/gpu-mode/kbgen/schema"
)

// maxHolders bounds how many processes of one device are remembered.
const maxHolders = 32

// counters sum up samples as they come, so that a long phase costs no memory.
type counters struct{ devices []deviceCounters }

type deviceCounters struct {
	index                       int
	n                           int
	clock, memory, temp, powerW spread
	throttle                    []schema.Count
	holders                     []schema.Holder
}

func (c *counters) add(samples []Sample) {
	for _, s := range samples {
		at := slices.IndexFunc(c.devices, func(d deviceCounters) bool { return d.index == s.Index })
		if at < 0 {
			at = len(c.devices)
			c.devices = append(c.devices, deviceCounters{index: s.Index})
		}
		c.devices[at].add(s)
	}
}

func (d *deviceCounters) add(s Sample) {
	d.n++
	d.clock.add(float64(s.ClockSM))
	d.memory.add(float64(s.ClockMemory))
	d.temp.add(float64(s.Temperature))
	d.powerW.add(s.PowerW)
	for _, reason := range s.Throttle {
		at := slices.IndexFunc(d.throttle, func(c schema.Count) bool { return c.Reason == reason })
		if at < 0 {
			at = len(d.throttle)
			d.throttle = append(d.throttle, schema.Count{Reason: reason})
		}
		d.throttle[at].Samples++
	}
	for _, h := range s.Processes {
		known := func(k schema.Holder) bool { return k.PID == h.PID }
		if len(d.holders) < maxHolders && !slices.ContainsFunc(d.holders, known) {
			d.holders = append(d.holders, h)
		}
	}
}

func (c *counters) sum() []schema.Sampling {
	var out []schema.Sampling
	for _, d := range c.devices {
		out = append(out, schema.Sampling{
			Index: d.index, Samples: d.n, ClockSM: d.clock.sum(), ClockMemory: d.memory.sum(),
			Temperature: d.temp.sum(), PowerW: d.powerW.sum(), Throttle: d.throttle, Seen: d.holders,
		})
	}
	return out
}

// A spread is the least, the most and the sum of what was added.
type spread struct {
	min, max, total float64
	n               int
}

func (s *spread) add(v float64) {
	if s.n == 0 || v < s.min {
		s.min = v
	}
	s.max = max(s.max, v)
	s.total += v
	s.n++
}

func (s *spread) sum() schema.Spread {
	if s.n == 0 {
		return schema.Spread{}
	}
	return schema.Spread{Min: s.min, Mean: s.total / float64(s.n), Max: s.max}
}
