package harness

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

//go:embed testdata/prove.py
var standInTools string

// prove proves the stand-in device.
func prove(t *testing.T, tools string, change ...string) *schema.Proof {
	t.Helper()
	proof, err := Prove(t.Context(), deviceOptions(t, tools, change...))
	must(t, err)
	return proof
}

func check(p *schema.Proof, name string) schema.ProofCheck {
	for _, c := range p.Checks {
		if c.Name == name {
			return c
		}
	}
	return schema.ProofCheck{}
}

// TestSlowProve: the stand-in device passes every check, and its queued work gains nothing.
func TestSlowProve(t *testing.T) {
	testenv.NeedSlow(t)
	failed := map[string]string{}
	for try := range 3 {
		proof := prove(t, standInTools)
		t.Logf("%+v\n%+v", proof.Checks, proof.Times)
		if len(proof.Checks) != 1+len(proofKernels(standIn{})) || proof.Sandbox == "" {
			t.Fatalf("%d checks in a sandbox of level %q", len(proof.Checks), proof.Sandbox)
		}
		for _, c := range proof.Checks {
			if was, again := failed[c.Name]; !c.OK && (try == 0 || again) {
				failed[c.Name] = c.Text
			} else if c.OK && again {
				t.Logf("%s failed first: %s", c.Name, was)
				delete(failed, c.Name)
			}
		}
		if len(failed) == 0 {
			return
		}
	}
	for name, words := range failed {
		t.Errorf("%s failed three times: %s", name, words)
	}
}

// TestSlowProveFails: a device on which something is wrong is not proved.
func TestSlowProveFails(t *testing.T) {
	testenv.NeedSlow(t)
	t.Run("memory is not shared", func(t *testing.T) {
		proof := prove(t, standInTools, `mmap.MAP_SHARED)`, `mmap.MAP_PRIVATE)`)
		if len(proof.Checks) != 1 || !strings.Contains(proof.Failed(), "channel: ") {
			t.Errorf("%q", proof.Failed())
		}
	})
	t.Run("kernels take longer than the figures say", func(t *testing.T) {
		proof := prove(t, strings.Replace(standInTools, "* 1e9)", "* 2e9)", 1))
		if c := check(proof, "times"); c.OK || !strings.Contains(c.Text, "by events") && !strings.Contains(c.Text, schema.OutcomeAmbiguous) {
			t.Errorf("%+v", c)
		}
	})
	t.Run("memory is not emptied", func(t *testing.T) {
		proof := prove(t, strings.Replace(standInTools, `storage.untyped())`, `storage.untyped()).fill_(1)`, 1))
		if c := check(proof, "memory emptied"); c.OK || !strings.Contains(c.Text, "what the last worker left is there") {
			t.Errorf("%+v", c)
		}
	})
}
