package device

import (
	"slices"

	"github.com/gpu-mode/kbgen/schema"
)

// maxHolders bounds how many processes of one device are remembered.
const maxHolders = 32

// counters sum up samples as they come, so that a long phase costs no memory. Until
// sum, means are totals.
type counters struct{ devices []schema.Sampling }

func (c *counters) add(samples []Sample) {
	for _, s := range samples {
		at := slices.IndexFunc(c.devices, func(d schema.Sampling) bool { return d.Index == s.Index })
		if at < 0 {
			at = len(c.devices)
			c.devices = append(c.devices, schema.Sampling{Index: s.Index})
		}
		d := &c.devices[at]
		d.Samples++
		spread := func(of *schema.Spread, v float64) {
			if d.Samples == 1 || v < of.Min {
				of.Min = v
			}
			of.Max = max(of.Max, v)
			of.Mean += v
		}
		spread(&d.ClockSM, float64(s.ClockSM))
		spread(&d.ClockMemory, float64(s.ClockMemory))
		spread(&d.Temperature, float64(s.Temperature))
		spread(&d.PowerW, s.PowerW)
		for _, reason := range s.Throttle {
			at := slices.IndexFunc(d.Throttle, func(c schema.Count) bool { return c.Reason == reason })
			if at < 0 {
				at = len(d.Throttle)
				d.Throttle = append(d.Throttle, schema.Count{Reason: reason})
			}
			d.Throttle[at].Samples++
		}
		for _, h := range s.Processes {
			known := func(k schema.Holder) bool { return k.PID == h.PID }
			if len(d.Seen) < maxHolders && !slices.ContainsFunc(d.Seen, known) {
				d.Seen = append(d.Seen, h)
			}
		}
	}
}

// sum returns what was added, and forgets it.
func (c *counters) sum() []schema.Sampling {
	devices := c.devices
	c.devices = nil
	for i := range devices {
		d := &devices[i]
		for _, of := range []*schema.Spread{&d.ClockSM, &d.ClockMemory, &d.Temperature, &d.PowerW} {
			of.Mean /= float64(d.Samples)
		}
	}
	return devices
}
