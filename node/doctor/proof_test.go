package doctor

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/schema"
)

// provedAt is when the slot's GPU was proved.
var provedAt = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// prove writes the proof of the slot's GPU, with a change.
func (w *world) prove(change func(*schema.Proof)) {
	w.t.Helper()
	p := schema.Proof{Time: provedAt, UUID: uuid, Driver: "580.95.05", Checks: []schema.ProofCheck{
		{Lang: schema.LangPython, Name: "channel", OK: true}, {Lang: schema.LangCUDA, Name: "channel", OK: true},
	}}
	change(&p)
	b, err := json.Marshal(&p)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(node.ProofsDir+"/"+p.UUID+".json", string(b))
}

// TestProof: doctor says what a proof shows and which checks failed, what has changed since
// the GPU was proved, and why it does not look for a proof.
func TestProof(t *testing.T) {
	pin := func(w *world, at time.Time) {
		pins, err := yaml.Marshal(node.Pins{Version: 1, Images: map[string]node.Pin{"runner:1": {ID: "sha256:1", At: at}}})
		if err != nil {
			t.Fatal(err)
		}
		w.write(node.PinsPath, string(pins))
	}
	amd := func(w *world, location string) {
		w.config.Slots[0].Devices = []node.Device{{Vendor: "amd", PCI: "0000:05:00.0", Nodes: []string{"/dev/nvidia7"}}}
		w.write("/sys/class/kfd/kfd/topology/nodes/1/properties", "drm_render_minor 128\nunique_id 4660\nlocation_id "+location+"\n")
		w.write("/sys/module/amdgpu/version", "6.10.5\n")
		w.prove(func(p *schema.Proof) { p.UUID, p.Driver = "GPU-0000000000001234", "6.8.0" })
	}
	for _, tt := range []struct {
		name, text string
		state      State
		set        func(*world)
	}{
		{"good", "the isolated harness works on its GPU: 1 checks passed in Python, 1 in C++", OK, func(*world) {}},
		{"without a compiler", "works on its GPU: 1 checks passed in Python; C++ was not tried: the machine has no nvcc", OK, func(w *world) {
			w.prove(func(p *schema.Proof) { p.Checks, p.NotTried = p.Checks[:1], "the machine has no nvcc" })
		}},
		{"none", "no proof in /var/lib/kbnode/proofs", Warning, func(w *world) { w.remove(node.ProofsDir) }},
		{"a check in C++ failed", "does not work on its GPU: 1 checks passed in Python, 0 in C++; failed: C++ late work: passed", Warning, func(w *world) {
			w.prove(func(p *schema.Proof) {
				p.Checks[1] = schema.ProofCheck{Lang: schema.LangCUDA, Name: "late work", Text: "passed"}
			})
		}},
		{"another driver", "its GPU's proof of 2026-07-01 12:00 is stale: the driver was 570.86.15, and is 580.95.05", Warning, func(w *world) {
			w.prove(func(p *schema.Proof) { p.Driver = "570.86.15" })
		}},
		{"another image", "stale: runner:1 was replaced on 2026-07-01 13:00 by an image whose kbrun or torch may differ", Warning, func(w *world) { pin(w, provedAt.Add(time.Hour)) }},
		{"an image from before", "works on its GPU", OK, func(w *world) { pin(w, provedAt.Add(-time.Hour)) }},
		{"the driver is not loaded", "works on its GPU", OK, func(w *world) { w.remove("/proc/driver/nvidia/version") }},
		{"AMD", "the driver was 6.8.0, and is 6.10.5", Warning, func(w *world) { amd(w, "1280") }},
		{"AMD, at another place", "the driver does not show its GPU", Skipped, func(w *world) { amd(w, "1536") }},
		{"no GPU", "the slot has no GPU", Skipped, func(w *world) { w.config.Slots[0].Devices = nil }},
		{"no containers", "its jobs run on the machine itself", Skipped, func(w *world) { w.config.Slots[0].Platform = "host" }},
	} {
		w := healthy(t)
		w.smi(answering)
		tt.set(w)
		if r := w.result("proof"); r.State != tt.state || !strings.Contains(r.Text, tt.text) || (r.Fix == "kbnode verify gpu0") != (tt.state == Warning) {
			t.Errorf("%s: got %+v, want %s with %q", tt.name, r, tt.state, tt.text)
		}
	}
}
