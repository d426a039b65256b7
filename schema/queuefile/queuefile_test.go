package queuefile

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/validation"
)

var update = flag.Bool("update", false, "rewrite testdata/faults.txt from what Decode and Check find")

// fleet stands in for the table of GPU types, which schema may not import.
var fleet = []GPUType{
	{Name: "CPU_BK", Maker: "none", Queue: "cpu", CPUs: 2, MemoryGiB: 4, Isolation: "node"},
	{Name: "H100_BK", Maker: "nvidia", Queue: "h100", GPUs: 1, CPUs: 8, MemoryGiB: 64, Isolation: "node", Image: "runner:1-cuda"},
	{Name: "T4", Maker: "nvidia", Queue: "t4", GPUs: 1, CPUs: 4, MemoryGiB: 16, Isolation: "node", Off: "no machine"},
	{Name: "H100_1G10GB", Maker: "nvidia", Queue: "h100-1g10gb", Slice: "1g.10gb", GPUs: 1, CPUs: 4, MemoryGiB: 16, Isolation: "node"},
	{Name: "H100x8", Maker: "nvidia", Queue: "h100x8", GPUs: 8, CPUs: 96, MemoryGiB: 1024, Isolation: "step"},
	{Name: "MI300_BK", Maker: "amd", Queue: "mi300", GPUs: 1, CPUs: 8, MemoryGiB: 64, Isolation: "node"},
	{Name: "TPU", Maker: "google", Queue: "google-tpu", GPUs: 1, CPUs: 24, MemoryGiB: 48, Isolation: "node"},
}

// right is a file that nothing is wrong with; the cases edit it.
const right = `version: 1
vendor: nebius
contacts:
  - name: Ops
    email: ops@nebius.dev
nodes:
  - name: a1
    isolation: node
    machine:
      cpus: 130
      memory_gib: 1024
      disk_gb: 1000
      network_mbps: 10000
    gpus:
      - type: H100_BK
        count: 8
        queue: h100
        agent:
          cpus: 16
          memory_gib: 64
          disk_gb: 100
`

const (
	gpu0 = "GPU-11111111-2222-3333-4444-000000000000"
	gpu1 = "GPU-11111111-2222-3333-4444-000000000001"
	mig0 = "MIG-11111111-2222-3333-4444-000000000000"
)

// secondNode is another of the same, to append.
var secondNode = right[strings.Index(right, "  - name: a1"):]

// images are the digests of a file.
var images = "images:\n  - reference: runner:1-cuda\n    digest: sha256:" + strings.Repeat("0", 64) + "\n"

// severalMakers are groups beside the right file's: each maker's driver counts
// from 0, and agents without a GPU are counted.
const severalMakers = `      - type: MI300_BK
        indexes: [0, 1]
        queue: mi300
        agent: {cpus: 16, memory_gib: 64, disk_gb: 100}
      - type: CPU_BK
        count: 2
        queue: cpu
        agent: {cpus: 2, memory_gib: 4, disk_gb: 5}
`

// cases edit the right file by pairs of old and new text. "" for the old text
// appends, and for both it replaces nothing.
var cases = []struct {
	name  string
	edits []string
}{
	{"right", nil},
	{"indexes", []string{"count: 8", "indexes: [0, 1, 5]"}},
	{"UUIDs", []string{"count: 8", "uuids: [" + gpu0 + ", " + gpu1 + "]"}},
	{"a queue for each GPU", []string{"queue: h100", `queue: "{vendor}-{gpu_type}-{index}"`}},
	{"two nodes", []string{"", strings.Replace(secondNode, "a1", "a2", 1)}},
	{"AMD with UUID", []string{"vendor: nebius", "vendor: amd", "H100_BK", "MI300_BK", "queue: h100", "queue: mi300", "count: 8", "uuids: [GPU-0123456789abcdef]"}},
	{"CPUs only", []string{"H100_BK", "CPU_BK", "queue: h100", "queue: cpu", "cpus: 16", "cpus: 2", "memory_gib: 64", "memory_gib: 4", "disk_gb: 100\n", "disk_gb: 5\n"}},
	{"TPU", []string{"vendor: nebius", "vendor: google", "H100_BK", "TPU", "count: 8", "count: 4", "queue: h100", "queue: google-tpu", "cpus: 16", "cpus: 24"}},
	{"slices", []string{"H100_BK", "H100_1G10GB", "count: 8", "uuids: [" + mig0 + "]", "queue: h100", "queue: h100-1g10gb", "cpus: 16", "cpus: 4", "memory_gib: 64", "memory_gib: 16", "disk_gb: 100\n", "disk_gb: 5\n"}},
	{"eight GPUs in one job", []string{"H100_BK", "H100x8", "isolation: node", "isolation: step", "queue: h100", "queue: h100x8", "agent:", "agent:\n          gpus: 8", "cpus: 16", "cpus: 128", "memory_gib: 64", "memory_gib: 1024", "memory_gib: 1024\n      disk", "memory_gib: 2048\n      disk", "disk_gb: 100\n", "disk_gb: 800\n"}},
	{"switched off, and small", []string{"H100_BK", "T4", "queue: h100", "queue: t4", "cpus: 16", "cpus: 8", "memory_gib: 64", "memory_gib: 16", "disk_gb: 100\n", "disk_gb: 50\n", "network_mbps: 10000", "network_mbps: 800"}},
	{"images by digest", []string{"nodes:", images + "allow_tags: true\nnodes:"}},
	{"image twice", []string{"nodes:", images + strings.TrimPrefix(images, "images:\n") + "nodes:"}},
	{"image that no step names", []string{"nodes:", strings.Replace(images, "cuda", "cud", 1) + "nodes:"}},
	{"image with a short digest", []string{"nodes:", strings.Replace(images, "00", "0", 1) + "nodes:"}},
	{"image without a digest", []string{"nodes:", "images: [{reference: \"runner:1-cuda\"}]\nallow_tags: yes please\nnodes:"}},
	{"placeholders", []string{"ops@nebius.dev", "ops@example.com", "count: 8", "uuids: [GPU-00000000-2222-3333-4444-000000000000]"}},

	{"several makers in one machine", []string{"count: 8", "count: 4", "", severalMakers}},
	{"two types of one maker on one GPU", []string{"", strings.NewReplacer("MI300_BK", "T4", "mi300", "t4").Replace(severalMakers), "count: 8", "count: 2"}},

	{"empty", []string{right, ""}},
	{"no YAML", []string{"nodes:", "nodes: ["}},
	{"a list", []string{right, "- version: 1\n"}},
	{"two documents", []string{"", "---\nversion: 1\n"}},
	{"anchor", []string{"name: Ops", "name: &ops Ops"}},
	{"merge key", []string{"name: Ops", "name: Ops\n    <<: {chat: x}"}},
	{"tag", []string{"name: Ops", "name: !!str Ops"}},
	{"key twice", []string{"count: 8", "count: 8\n        count: 7"}},
	{"number as a key", []string{"count: 8", "count: 8\n        8: x"}},
	{"unknown key", []string{"queue: h100", "quue: h100"}},
	{"unknown key at the top", []string{"contacts:", "contact:"}},
	{"a version to come", []string{"version: 1", "version: 2"}},
	{"capitals", []string{"vendor: nebius", "vendor: Nebius"}},
	{"no contacts", []string{"contacts:\n  - name: Ops\n    email: ops@nebius.dev\n", "contacts: []\n"}},
	{"no address", []string{"ops@nebius.dev", "ask around"}},
	{"no nodes", []string{"nodes:\n" + secondNode, "nodes:\n"}},
	{"node with a comma", []string{"name: a1", "name: a1,queue=b200"}},
	{"isolation unknown", []string{"isolation: node", "isolation: nodes"}},
	{"words for numbers", []string{"cpus: 130", "cpus: many", "memory_gib: 1024", "memory_gib: 1TB", "count: 8", `count: "8"`}},
	{"half a core", []string{"cpus: 16", "cpus: 16.5"}},
	{"zero", []string{"count: 8", "count: 0", "cpus: 16", "cpus: 0"}},
	{"infinite", []string{"cpus: 16", "cpus: .inf"}},
	{"nothing", []string{"count: 8", "count:"}},
	{"no GPUs", []string{"        count: 8\n", ""}},
	{"two ways to say which", []string{"count: 8", "count: 8\n        indexes: [0]"}},
	{"queue with a blank", []string{"queue: h100", "queue: h 100"}},
	{"queue with an unknown placeholder", []string{"queue: h100", `queue: "h100-{gpu}"`}},
	{"queue too long when filled in", []string{"queue: h100", `queue: "{node}{node}{node}{node}{node}{node}{node}{node}{node}{node}{node}{node}{node}{index}"`, "name: a1", "name: a1-with-a-long-name"}},

	{"node twice", []string{"", secondNode}},
	{"index twice", []string{"count: 8", "indexes: [0, 1, 0]"}},
	{"UUID twice", []string{"count: 8", "uuids: [" + gpu0 + ", " + gpu0 + "]"}},
	{"count over another count", []string{"", secondNode[strings.Index(secondNode, "      - type"):]}},
	{"one queue for two agents", []string{"queue: h100", `queue: "{vendor}-{gpu_type}-{index}"`, "", strings.NewReplacer("a1", "a2", "queue: h100", `queue: "{vendor}-{gpu_type}-{index}"`).Replace(secondNode)}},
	{"not enough for the host", []string{"cpus: 130", "cpus: 128", "memory_gib: 1024", "memory_gib: 512", "disk_gb: 1000", "disk_gb: 800"}},
	{"GPUs left over", []string{"agent:", "agent:\n          gpus: 3"}},

	{"unknown GPU type", []string{"H100_BK", "H10_BK"}},
	{"NVIDIA on AMD", []string{"vendor: nebius", "vendor: amd"}},
	{"AMD UUID for NVIDIA", []string{"count: 8", "uuids: [GPU-0123456789abcdef]"}},
	{"slice for a whole GPU", []string{"count: 8", "uuids: [" + mig0 + "]"}},
	{"slices by count", []string{"H100_BK", "H100_1G10GB", "queue: h100", "queue: h100-1g10gb"}},
	{"UUID of a TPU", []string{"H100_BK", "TPU", "queue: h100", "queue: google-tpu", "cpus: 16", "cpus: 24", "count: 8", "uuids: [" + gpu0 + "]"}},
	{"below the promise", []string{"memory_gib: 64", "memory_gib: 32"}},
	{"below the minimum", []string{"H100_BK", "T4", "queue: h100", "queue: t4", "cpus: 16", "cpus: 4", "disk_gb: 100\n", "disk_gb: 20\n", "network_mbps: 10000", "network_mbps: 100"}},
	{"two GPUs for a job of one", []string{"agent:", "agent:\n          gpus: 2"}},
	{"GPUs of a CPU", []string{"H100_BK", "CPU_BK", "queue: h100", "queue: cpu", "agent:", "agent:\n          gpus: 2"}},
	{"a queue of nobody", []string{"queue: h100", "queue: h10"}},
	{"the queue of another type", []string{"queue: h100", `queue: "{vendor}"`, "vendor: nebius", "vendor: t4"}},
	{"step on a node row", []string{"isolation: node", "isolation: step"}},
	{"node on a step row", []string{"H100_BK", "H100x8", "queue: h100", "queue: h100x8"}},
	{"two agents with step", []string{"H100_BK", "H100x8", "isolation: node", "isolation: step", "queue: h100", "queue: h100x8", "agent:", "agent:\n          gpus: 8", "count: 8", "count: 16"}},
	{"a million GPUs", []string{"count: 8", "count: 1000000"}},
	{"more GPUs than there are numbers", []string{"count: 8", "count: 9223372036854775807", "cpus: 16", "cpus: 9223372036854775807"}},
	{"indexes without end", []string{"count: 8", "indexes: [" + strings.Repeat("0, ", 129) + "0]"}},
	{"a token for an address", []string{"ops@nebius.dev", "bkct_" + strings.Repeat("aB3", 10)}},
	{"a webhook for a chat", []string{"name: Ops", "name: Ops\n    chat: https://hooks.slack.com/services/T012/B345/" + strings.Repeat("x", 24)}},
	{"an old agent token", []string{"name: Ops", "name: Ops\n    chat: " + strings.Repeat("a1", 25)}},
	{"a token in a comment", []string{"name: Ops", "name: Ops # ghp_" + strings.Repeat("a1", 18)}},
	{"a token for a key", []string{"name: Ops", "name: Ops\n    ghp_" + strings.Repeat("a1", 18) + ": x"}},
	{"everything at once", []string{"vendor: nebius", "vendor: amd", "ops@nebius.dev", "nobody", "isolation: node", "isolation: step", "cpus: 130", "cpus: 8", "count: 8", "count: 8\n        colour: red", "queue: h100", "queue: H100", "memory_gib: 64", "memory_gib: 8", "          disk_gb: 100\n", ""}},
}

func edited(t *testing.T, edits []string) string {
	t.Helper()
	text := right
	for i := 0; i+1 < len(edits); i += 2 {
		switch old := edits[i]; {
		case old == "":
			text += edits[i+1]
		case !strings.Contains(text, old):
			t.Fatalf("the file has no %q to edit", old)
		default:
			text = strings.Replace(text, old, edits[i+1], 1)
		}
	}
	return text
}

// check is all that is found in one file, in words.
func check(text string) string {
	f, faults := Decode("f.yml", []byte(text))
	var b strings.Builder
	for _, fault := range append(faults, Check([]*File{f}, fleet)...) {
		fmt.Fprintln(&b, fault)
	}
	return b.String()
}

func TestFaults(t *testing.T) {
	var all strings.Builder
	for _, tt := range cases {
		found := check(edited(t, tt.edits))
		if found == "" {
			found = "nothing\n"
		}
		fmt.Fprintf(&all, "# %s\n%s\n", tt.name, found)
	}
	const golden = "testdata/faults.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), all.String()); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// Too little is told apart from what cannot be meant.
func TestSmall(t *testing.T) {
	for edit, small := range map[[2]string]bool{
		{"cpus: 16", "cpus: 2"}:                    true,
		{"memory_gib: 64", "memory_gib: 1"}:        true,
		{"disk_gb: 100\n", "disk_gb: 1\n"}:         true,
		{"cpus: 130", "cpus: 8"}:                   true,
		{"memory_gib: 1024", "memory_gib: 2"}:      true,
		{"disk_gb: 1000", "disk_gb: 20"}:           true,
		{"network_mbps: 10000", "network_mbps: 1"}: true,
		{"cpus: 16", "cpus: -1"}:                   false,
		{"cpus: 16\n", "cpus: many\n"}:             false,
		{"type: H100_BK", "type: H100_XX"}:         false,
		{"count: 8", "count: -8"}:                  false,
		{"isolation: node", "isolation: step"}:     false,
		{"queue: h100", "queue: t4"}:               false,
		{"vendor: nebius", "vendor: amd"}:          false,
	} {
		f, faults := Decode("a.yml", []byte(strings.Replace(right, edit[0], edit[1], 1)))
		if f != nil {
			faults = append(faults, Check([]*File{f}, fleet)...)
		}
		if !Failed(faults) {
			t.Errorf("%q: no fault", edit[1])
		}
		for _, fault := range faults {
			if fault.Severity == schema.SeverityError && f.Small(fault) != small {
				t.Errorf("%q: Small(%v) = %t, want %t", edit[1], fault, !small, small)
			}
		}
	}
}

func TestTooLong(t *testing.T) {
	f, faults := Decode("f.yml", make([]byte, MaxSize+1))
	if f != nil || len(faults) != 1 || faults[0].Got != "1048577 bytes" {
		t.Errorf("Decode of %d bytes = %v, %v, want one fault", MaxSize+1, f, faults)
	}
}

// No number is expanded before it is known to be one that may be: the file says a
// million GPUs for each of some thousand machines.
func TestHugeNumbersEndAtOnce(t *testing.T) {
	var b strings.Builder
	b.WriteString(right)
	for i := range 2000 {
		b.WriteString(strings.NewReplacer("a1", fmt.Sprintf("n%d", i), "count: 8", "count: 999999999").Replace(secondNode))
	}
	f, faults := Decode("f.yml", []byte(b.String()))
	if f == nil || len(faults) < 2000 {
		t.Errorf("Decode = %v and %d faults, want one for each count", f, len(faults))
	}
	if n := len(f.Agents()); n != 8 {
		t.Errorf("%d agents, want those of the one machine whose count may be", n)
	}
	huge := right + strings.Repeat(strings.Replace(secondNode, "count: 8", "count: 128", 1), 100)
	if f, faults := Decode("f.yml", []byte(huge)); f != nil || !strings.Contains(faults[len(faults)-1].Error(), "got 12808 GPUs, want at most 8192 in one file") {
		t.Errorf("Decode of 12808 GPUs = %v, %v, want none of it expanded", f, faults)
	}
}

// A token stands in no fault.
func TestTokensStayUnsaid(t *testing.T) {
	for _, tt := range cases {
		for _, edit := range tt.edits {
			for _, secret := range []string{strings.Repeat("aB3", 10), strings.Repeat("x", 24), strings.Repeat("a1", 18)} {
				if said := check(edited(t, tt.edits)); strings.Contains(edit, secret) && (strings.Contains(said, secret) || said == "") {
					t.Errorf("%s: %q is said in, or nothing is found:\n%s", tt.name, secret, said)
				}
			}
		}
	}
}

// What one file takes is taken for the next.
func TestFilesAreCompared(t *testing.T) {
	uuids := []string{"count: 8", "uuids: [" + gpu0 + "]"}
	pattern := []string{"queue: h100", `queue: "{vendor}-{gpu_type}-{index}"`}
	a, _ := Decode("a.yml", []byte(edited(t, append(uuids, pattern...))))
	b, faults := Decode("b.yml", []byte(edited(t, append(uuids, pattern...))))
	if len(faults) > 0 {
		t.Fatalf("Decode = %v, want no faults", faults)
	}
	var got []string
	for _, f := range Check([]*File{a, nil, b}, fleet) {
		if f.Severity == schema.SeverityError {
			got = append(got, f.Error())
		}
	}
	want := []string{
		`b.yml:7:11: error: nodes[0].name: got "a1", want a name of its own, it is that of nodes[0].name in a.yml:7`,
		`b.yml:16:17: error: nodes[0].gpus[0].uuids[0]: got "` + gpu0 + `", want a GPU of its own, it is that of nodes[0].gpus[0].uuids[0] in a.yml:16`,
		`b.yml:17:16: error: nodes[0].gpus[0].queue: got "nebius-h100-0", want a queue for each agent ({node} in the pattern helps), it is that of nodes[0].gpus[0].queue in a.yml:17`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Check(a, b) (-want +got):\n%s", diff)
	}
}

func TestAgents(t *testing.T) {
	for _, tt := range []struct {
		name  string
		edits []string
		want  []string // queue, devices and tags
	}{
		{"indexes", []string{"count: 8", "indexes: [3, 5]"}, []string{
			"h100 [3] [queue=h100 gpu=H100_BK vendor=nebius node=a1 gpu-index=3]",
			"h100 [5] [queue=h100 gpu=H100_BK vendor=nebius node=a1 gpu-index=5]",
		}},
		{"UUIDs and patterns", []string{"count: 8", "uuids: [" + gpu0 + ", " + gpu1 + "]", "queue: h100", `queue: "{vendor}-{node}-{gpu_type}-{index}"`}, []string{
			"nebius-a1-h100-0 [" + gpu0 + "] [queue=nebius-a1-h100-0 gpu=H100_BK vendor=nebius node=a1 gpu-uuid=" + gpu0 + "]",
			"nebius-a1-h100-1 [" + gpu1 + "] [queue=nebius-a1-h100-1 gpu=H100_BK vendor=nebius node=a1 gpu-uuid=" + gpu1 + "]",
		}},
		{"two GPUs each", []string{"count: 8", "count: 4", "agent:", "agent:\n          gpus: 2"}, []string{
			"h100 [0 1] [queue=h100 gpu=H100_BK vendor=nebius node=a1 gpu-index=0]",
			"h100 [2 3] [queue=h100 gpu=H100_BK vendor=nebius node=a1 gpu-index=2]",
		}},
	} {
		f, faults := Decode("f.yml", []byte(edited(t, tt.edits)))
		if len(faults) > 0 {
			t.Errorf("%s: Decode = %v, want no faults", tt.name, faults)
			continue
		}
		var got []string
		for _, a := range f.Agents() {
			if a.Line != 15 || a.Path != "nodes[0].gpus[0]" {
				t.Errorf("%s: an agent of %s on line %d, want nodes[0].gpus[0] on 15", tt.name, a.Path, a.Line)
			}
			got = append(got, fmt.Sprint(a.Queue, " ", a.Devices, " ", a.Tags))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: Agents() (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A sample is right as it is, for every type and size.
func TestSample(t *testing.T) {
	for _, row := range fleet {
		for _, jobs := range []int{1, 2, 8} {
			if row.Isolation == "step" && jobs > 1 {
				continue
			}
			text := Sample(row, "nebius", "a1", jobs*max(1, row.GPUs))
			f, faults := Decode("f.yml", []byte(text))
			for _, fault := range append(faults, Check([]*File{f}, fleet)...) {
				if fault.Severity == schema.SeverityError {
					t.Errorf("Sample(%s, %d jobs): %v in\n%s", row.Name, jobs, fault, text)
				}
			}
			if f != nil && len(f.Agents()) != jobs {
				t.Errorf("Sample(%s) has %d agents, want %d", row.Name, len(f.Agents()), jobs)
			}
		}
	}
}

// Every value in the schema says what is wanted, since faults quote it.
func TestSchemaDescribesEveryValue(t *testing.T) {
	var walk func(p string, s *validation.Shape)
	walk = func(p string, s *validation.Shape) {
		if s.Description == "" {
			t.Errorf("%s has no description", p)
		}
		for name, sub := range s.Properties {
			walk(p+"."+name, sub)
		}
		if s.Items != nil {
			walk(p+"[]", s.Items)
		}
	}
	root := compiled.Shape("", nil)
	walk("file", &root)
}

func FuzzDecode(f *testing.F) {
	for _, tt := range cases {
		text := right
		for i := 0; i+1 < len(tt.edits); i += 2 {
			text = strings.Replace(text, tt.edits[i], tt.edits[i+1], 1)
		}
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		file, faults := Decode("f.yml", doc)
		if file == nil && !Failed(faults) {
			t.Fatalf("Decode(%q) = nil without an error", doc)
		}
		all := append(faults, Check([]*File{file}, fleet)...)
		for _, fault := range all {
			if fault.Line < 1 || fault.Column < 1 || fault.Got == "" || fault.Want == "" || strings.Contains(fault.Error(), "\n") {
				t.Errorf("Decode(%q): the fault %#v, want a place and words on one line", doc, fault)
			}
		}
		if file != nil && !Failed(all) && len(file.Agents()) == 0 {
			t.Errorf("Decode(%q): no faults and no agents", doc)
		}
	})
}

// The schema and the Go types have the same keys.
func TestSchemaHasTheTypesKeys(t *testing.T) {
	var walk func(p string, s *validation.Shape, typ reflect.Type)
	walk = func(p string, s *validation.Shape, typ reflect.Type) {
		for typ.Kind() == reflect.Slice {
			typ, s = typ.Elem(), s.Items
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		keys := map[string]bool{}
		for i := range typ.NumField() {
			key, ok := typ.Field(i).Tag.Lookup("yaml")
			if !ok {
				continue
			}
			keys[key] = true
			if s.Properties[key] == nil {
				t.Errorf("the schema of %s has no %s", p, key)
			} else {
				walk(p+"."+key, s.Properties[key], typ.Field(i).Type)
			}
		}
		for key := range s.Properties {
			if !keys[key] {
				t.Errorf("the type of %s has no %s", p, key)
			}
		}
	}
	root := compiled.Shape("", nil)
	walk("file", &root, reflect.TypeFor[File]())
}
