package schema

import (
	"strings"
	"testing"
)

func TestDeviceTypeMismatch(t *testing.T) {
	yes := true
	h100 := DeviceType{Names: []string{"NVIDIA H100 *", "H100-*"}, Arch: "90", MemoryGiB: 75}
	part := DeviceType{Names: []string{"NVIDIA H100 * MIG 1g.10gb"}, Arch: "90"}
	good := Device{Name: "NVIDIA H100 80GB HBM3", Arch: "90", MemoryBytes: 81559 << 20}
	with := func(change func(*Device)) Device { d := good; change(&d); return d }
	for _, tt := range []struct {
		name string
		t    DeviceType
		d    Device
		want string // in the words; "" is none
	}{
		{"anything", DeviceType{}, Device{}, ""},
		{"as it should be", h100, good, ""},
		{"the other pattern, another case", h100, with(func(d *Device) { d.Name = "h100-SXM" }), ""},
		{"another name", h100, with(func(d *Device) { d.Name = "NVIDIA H200" }), `its name is "NVIDIA H200", want ["NVIDIA H100 *" "H100-*"]`},
		{"a longer number", h100, with(func(d *Device) { d.Name = "NVIDIA H1000 X" }), "its name is"},
		{"no name", h100, with(func(d *Device) { d.Name = "" }), "it does not tell its name, want"},
		{"another architecture", h100, with(func(d *Device) { d.Arch = "100" }), `its architecture is "100", want "90"`},
		{"no architecture", h100, with(func(d *Device) { d.Arch = "" }), `it does not tell its architecture, want "90"`},
		{"less memory", h100, with(func(d *Device) { d.MemoryBytes = 64 << 30 }), "it has 64.0 GiB of memory, want at least 75 GiB"},
		{"no memory told", h100, with(func(d *Device) { d.MemoryBytes = 0 }), "it does not tell its memory, want at least 75 GiB"},
		{"everything", h100, Device{Name: "X\n\x1b[31m", Arch: "1", MemoryBytes: 1}, "; its architecture"},
		{"a part for the whole", h100, with(func(d *Device) { d.Name += " MIG 1g.10gb" }), "its name is"},
		{"a GPU that is split", h100, with(func(d *Device) { d.MIG = &yes }), "it is split into parts (MIG)"},
		{"a part", part, with(func(d *Device) { d.Name += " MIG 1g.10gb"; d.MIG = &yes; d.MemoryBytes = 0 }), ""},
		{"another part", part, with(func(d *Device) { d.Name += " MIG 1g.20gb" }), "its name is"},
		{"a part of parts", part, with(func(d *Device) { d.Name += " MIG 1g.10gb+me" }), "its name is"},
		{"the whole for a part", part, good, "its name is"},
		{"the whole, split, for a part", part, with(func(d *Device) { d.MIG = &yes }), "its name is"},
	} {
		got := tt.t.Mismatch(tt.d)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: Mismatch = %q, want %q", tt.name, got, tt.want)
		}
		if strings.ContainsAny(got, "\n\x1b") {
			t.Errorf("%s: the driver's text is not cleaned: %q", tt.name, got)
		}
	}
}

func TestDeviceTypePatterns(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"abc", "abc", true}, {"abc", "abcd", false}, {"abc", "", false}, {"*", "", true}, {"*", "abc", true},
		{"a*c", "ac", true}, {"a*c", "abbbc", true}, {"a*c", "abcb", false}, {"a*a", "a", false}, {"ab*ba", "aba", false},
		{"a*b*c", "a-b-b-c", true}, {"a*b*c", "acb", false}, {"a*bc*bc", "abcbc", true}, {"a*bc*bc", "abc", false}, {"**a", "a", true},
	} {
		if got := (DeviceType{Names: []string{tt.pattern}}).named(tt.name); got != tt.want {
			t.Errorf("%q matches %q: %v, want %v", tt.pattern, tt.name, got, tt.want)
		}
	}
}
