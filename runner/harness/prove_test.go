package harness

import (
	_ "embed"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

//go:embed testdata/prove.py
var standInTools string

//go:embed testdata/native/prove_gpu.h
var standInNativeTools string

// prove proves the stand-in device in Python.
func prove(t *testing.T, tools string, change ...string) *schema.Proof {
	t.Helper()
	proof, err := Prove(t.Context(), deviceOptions(t, tools, change...))
	must(t, err)
	return proof
}

// proveNative proves the stand-in device in C++.
func proveNative(t *testing.T, tools, device string) *schema.Proof {
	t.Helper()
	task := nativeProof(tools).Sources
	begun := time.Now()
	o := nativeOptions(t, device, task)
	o.Programs[plan.BuildSubmission] = compiled(t, plan.BuildSubmission, device, task)
	t.Logf("compiled in %s", time.Since(begun))
	proof, err := Prove(t.Context(), o)
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
	passes(t, 1+len(proofKernels(standIn{})), func(t *testing.T) *schema.Proof { return prove(t, standInTools) })
}

// TestSlowProveNative: so it does in C++.
func TestSlowProveNative(t *testing.T) {
	testenv.NeedSlow(t)
	passes(t, 1+len(nativeProofKernels(standIn{})), func(t *testing.T) *schema.Proof { return proveNative(t, standInNativeTools, standInDevice) })
}

// passes proves a device up to three times, until each check has passed.
func passes(t *testing.T, checks int, prove func(*testing.T) *schema.Proof) {
	t.Helper()
	failed := map[string]string{}
	for try := range 3 {
		begun := time.Now()
		proof := prove(t)
		for _, c := range proof.Checks {
			t.Logf("%+v", c)
		}
		t.Logf("%s\n%+v", time.Since(begun), proof.Times)
		if len(proof.Checks) != checks || proof.Sandbox == "" {
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

// TestSlowProveNativeFails: nor is it in C++.
func TestSlowProveNativeFails(t *testing.T) {
	testenv.NeedSlow(t)
	for _, tt := range []struct{ name, old, new, check, want string }{
		{"memory is not shared", "MAP_SHARED", "MAP_PRIVATE", "channel", "does not see what was written"},
		{"kernels take longer than the figures say", "push_back(thread_time() - begun)", "push_back(2 * (thread_time() - begun))", "times", "by events"},
		{"memory is not emptied", "std::memset(memory, byte, n)", "if (byte) std::memset(memory, byte, n)", "memory emptied", "what the last worker left is there"},
		// As if it had to wait for the other process's work: until the last element is there.
		{"the judge reads too late", "        std::string found;\n", `
        for (int i = 0; i < 400 && static_cast<unsigned char*>(memory)[4 * 4095] == 0xff; i++) usleep(1000);
        std::string found;
`, "late work", schema.OutcomePassed},
		{"queued work takes no time", "double(note[1]) * 1e3", "0", "work queued ahead", "for work that takes 1000 µs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tools, device := strings.Replace(standInNativeTools, tt.old, tt.new, 1), strings.Replace(standInDevice, tt.old, tt.new, 1)
			if tools == standInNativeTools && device == standInDevice {
				t.Fatal("nothing was changed in the stand-in")
			}
			if c := check(proveNative(t, tools, device), tt.check); c.OK || !strings.Contains(c.Text, tt.want) && !strings.Contains(c.Text, schema.OutcomeAmbiguous) {
				t.Errorf("%+v", c)
			}
		})
	}
}
