package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema/glob"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A DeviceType says how the devices of a GPU type are known by what their driver
// tells of them. What is empty is not asked for.
type DeviceType struct {
	// Names are what the driver may call them, "NVIDIA H100 *". A star stands
	// for any text, also none; case does not count. A part of a GPU (MIG) is
	// called "… MIG 1g.10gb", and matches only a pattern that says " MIG ".
	Names     []string `json:"names" jsonschema:"patterns; one of them has to match"`
	Arch      string   `json:"arch,omitempty" jsonschema:"compute capability without its point, or gfx architecture"`
	MemoryGiB int      `json:"memory_gib,omitempty" jsonschema:"the least"` // units of 2^30 bytes; boards keep some for themselves
}

// Any reports whether nothing is asked for.
func (t DeviceType) Any() bool { return len(t.Names) == 0 && t.Arch == "" && t.MemoryGiB == 0 }

// Mismatch says why a device is none of this type: one line, "" when it is one.
// A device that does not tell what is asked for is none: another machine tells.
func (t DeviceType) Mismatch(d Device) string {
	var faults []string
	if len(t.Names) > 0 {
		switch {
		case d.MIG != nil && *d.MIG && !slice(d.Name) && !slice(strings.Join(t.Names, " ")):
			faults = append(faults, "it is split into parts (MIG)")
		case d.Name == "":
			faults = append(faults, fmt.Sprintf("it does not tell its name, want %q", t.Names))
		case !t.named(d.Name):
			faults = append(faults, fmt.Sprintf("its name is %s, want %q", text.Quote(d.Name), t.Names))
		}
	}
	if want := t.Arch; want != "" && !strings.EqualFold(d.Arch, want) {
		got := "it does not tell its architecture"
		if d.Arch != "" {
			got = "its architecture is " + text.Quote(d.Arch)
		}
		faults = append(faults, fmt.Sprintf("%s, want %q", got, want))
	}
	if want := t.MemoryGiB; want > 0 && d.MemoryBytes < uint64(want)<<30 {
		got := "it does not tell its memory"
		if d.MemoryBytes > 0 {
			got = fmt.Sprintf("it has %.1f GiB of memory", float64(d.MemoryBytes)/(1<<30))
		}
		faults = append(faults, fmt.Sprintf("%s, want at least %d GiB", got, want))
	}
	return strings.Join(faults, "; ")
}

func (t DeviceType) named(name string) bool {
	return slices.ContainsFunc(t.Names, func(pattern string) bool {
		return slice(pattern) == slice(name) && glob.Match(strings.ToLower(pattern), strings.ToLower(name))
	})
}

// slice reports whether a name is that of a part of a GPU.
func slice(name string) bool { return strings.Contains(strings.ToLower(name), " mig ") }
