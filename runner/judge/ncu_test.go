package judge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFilterNCU(t *testing.T) {
	header := "  k%d(int) (1, 1, 1)x(32, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n"
	kernel := func(n string) string {
		return strings.ReplaceAll(header, "%d", n) + "    Section: A\n    Table Name : GPU Throughput\n    ---\n    a 1\n    Section: B\n    b 2\n    Table Name : Warp State (All Cycles)\n    c 3\n\n    d 4\n"
	}
	shown := func(n string) string {
		return strings.ReplaceAll(header, "%d", n) + "\n    Table Name : GPU Throughput\n    ---\n    a 1\n\n    Table Name : Warp State (All Cycles)\n    c 3\n"
	}
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"==PROF== nothing\nTable Name : GPU Throughput\nx\n", ""},
		{kernel("1"), shown("1")},
		{kernel("1") + kernel("2") + kernel("3"), shown("1") + "\n" + shown("2") + "\nMore kernels are in the .ncu-rep file.\n"},
	} {
		if diff := cmp.Diff(tt.want, filterNCU(tt.in)); diff != "" {
			t.Errorf("filterNCU(%.60q) (-want +got):\n%s", tt.in, diff)
		}
	}
	long := filterNCU(kernel("1") + "    Table Name : GPU Throughput\n" + strings.Repeat("    line\n", 1000))
	if n := strings.Count(long, "\n"); n > ncuLines+1 {
		t.Errorf("%d lines", n)
	}
}

// The text for a message stays short, and holds only lines that were there.
func FuzzFilterNCU(f *testing.F) {
	f.Add("  k (1, 1, 1)x(32, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n Table Name : GPU Throughput\n a 1\n\n b 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		out := filterNCU(text)
		if n := strings.Count(out, "\n"); n > ncuLines+3 {
			t.Errorf("%d lines", n)
		}
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); line != "" && !strings.Contains(text, line) && !strings.HasPrefix(line, "More ") {
				t.Errorf("%q was not there", line)
			}
		}
	})
}
