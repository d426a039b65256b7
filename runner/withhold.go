package runner

import (
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// withholdNames takes the names of processes that were seen on the devices
// while the submission ran, or after: it may have chosen them, and with a
// secret seed spell it. Package judge withholds the rest.
func withholdNames(r *schema.Result) {
	if r.Device == nil {
		return
	}
	hide := func(list []schema.Holder) {
		for i := range list {
			if list[i].Name == "" {
				continue
			}
			for n, line := range r.Ambiguous {
				r.Ambiguous[n] = strings.ReplaceAll(line, list[i].Name, schema.WithheldText)
			}
			list[i].Name = schema.WithheldText
		}
	}
	for i := range r.Device.Devices {
		hide(r.Device.Devices[i].ProcessAfter)
	}
	for i := range r.Device.Sampling {
		hide(r.Device.Sampling[i].Seen)
	}
}
