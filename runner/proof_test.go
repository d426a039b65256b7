package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema"
)

// TestProved: a proof counts for one GPU, driver, torch and kbrun. Each of its checks must
// have passed, and only root may be able to write the file.
func TestProved(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: a proof belongs to root")
	}
	env := programs(t, map[string]string{"nvidia-smi": standInSMI})
	dir := t.TempDir()
	e := &evaluation{
		job:    Job{Payload: &schema.Payload{Lang: schema.LangPython}, Environ: env, Devices: device.Machine{Root: t.TempDir()}, ProofDir: dir},
		result: newResult(Job{Payload: &schema.Payload{}}), probed: make(chan struct{}),
	}
	e.watch = probeDevices(t.Context(), e.job, env, e.result)
	defer e.watch.Close()
	close(e.probed)
	e.result.Harness = &schema.HarnessReport{}
	good, err := e.gpu(env)
	if err != nil {
		t.Fatal(err)
	}
	good.Checks = []schema.ProofCheck{{Lang: schema.LangPython, Name: "channel", OK: true}}
	for _, tt := range []struct {
		name, want string // want "": it counts
		set        func(p *schema.Proof)
		mode       os.FileMode
		lang       string // of the task; "": Python
	}{
		{"good", "", func(*schema.Proof) {}, 0o644, ""},
		{"another driver", "another driver", func(p *schema.Proof) { p.Driver = "1" }, 0o644, ""},
		{"another torch", "another torch", func(p *schema.Proof) { p.Torch += "+" }, 0o644, ""},
		{"another kbrun", "another kbrun", func(p *schema.Proof) { p.Digest = "" }, 0o644, ""},
		{"another GPU's", "another GPU", func(p *schema.Proof) { p.UUID = "GPU-9" }, 0o644, ""},
		{"a check that failed", "late work: passed", func(p *schema.Proof) {
			p.Checks = append(p.Checks, schema.ProofCheck{Lang: schema.LangPython, Name: "late work", Text: "passed"})
		}, 0o644, ""},
		{"a check in C++ that failed", "", func(p *schema.Proof) {
			p.Checks = append(p.Checks, schema.ProofCheck{Lang: schema.LangCUDA, Name: "late work", Text: "passed"})
		}, 0o644, ""},
		{"no checks in Python", "nothing was checked", func(p *schema.Proof) {
			p.Checks = []schema.ProofCheck{{Lang: schema.LangCUDA, Name: "channel", OK: true}}
		}, 0o644, ""},
		{"no checks", "nothing was checked", func(p *schema.Proof) { p.Checks = nil }, 0o644, ""},
		{"a file that others write", "writable by no other", func(*schema.Proof) {}, 0o666, ""},
		{"C++ was not tried", "nothing was checked", func(*schema.Proof) {}, 0o644, schema.LangCUDA},
		{"C++ passed", "", func(p *schema.Proof) {
			p.Checks = []schema.ProofCheck{{Lang: schema.LangPython, Name: "late work"}, {Lang: schema.LangCUDA, Name: "channel", OK: true}}
		}, 0o644, schema.LangCUDA},
	} {
		p := *good
		tt.set(&p)
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, good.UUID+".json")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, tt.mode); err != nil {
			t.Fatal(err)
		}
		e.result.Harness.Proof = nil
		e.job.Payload.Lang = cmp.Or(tt.lang, schema.LangPython)
		why := e.proved(context.Background(), env)
		if (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) || (e.result.Harness.Proof != nil) != (tt.want == "") {
			t.Errorf("%s: got %q, want %q; %+v in the result", tt.name, why, tt.want, e.result.Harness.Proof)
		}
		os.Chmod(file, 0o644)
	}
	if _, err := ReadProof(filepath.Join(dir, good.UUID+".json"), 1); err == nil {
		t.Error("a proof of another user is read")
	}
	if _, err := ReadProof(filepath.Join(dir, "GPU-7.json"), 0); err == nil || !strings.Contains(err.Error(), "run kbrun prove") {
		t.Errorf("without a proof: %v", err)
	}
}

// TestProveNative: without a compiler, C++ is not tried. A compiler that does not work, and
// programs whose memory is not the GPU's, make a check fail.
func TestProveNative(t *testing.T) { testProveNative(t, false) }

// TestSlowProveNative tries compilers that compile.
func TestSlowProveNative(t *testing.T) {
	testenv.NeedSlow(t)
	testProveNative(t, true)
}

func testProveNative(t *testing.T, compiles bool) {
	tools, err := os.ReadFile("harness/testdata/native/prove_gpu.h")
	if err != nil {
		t.Fatal(err)
	}
	// The kernels, with other tools than prove_gpu.h.
	hostTools := strings.Replace(standInNvcc, "\nexec ", `
case $files in *submission.cu) { cat <<'EOF'
`+string(tools)+`EOF
sed '1,/^}  \/\/ namespace/d' submission.cu; } >$TMPDIR/submission.cu; files="kbrun_call.cu $TMPDIR/submission.cu -I."; opts="$opts -shared -fPIC" ;; esac
exec `, 1)
	for _, tt := range []struct{ name, script, checks, notTried, fault string }{
		{"no compiler", "", "", "the machine has no nvcc", ""},
		{"one that does not run", "#!/bin/sh\nexit 3\n", "", "", "nvcc ended with status 3"},
		{"one that has no CUDA", standInNvcc, "", "", "error: cuda_runtime.h: No such file or directory"},
		{"one that knows no GPU", hostTools, "ok compiler, FAIL channel: the inputs do not lie on the GPU", "", ""},
	} {
		if (tt.script == standInNvcc || tt.script == hostTools) != compiles {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			bare := t.TempDir() // with Python alone
			if err := os.Symlink(testenv.Python(t), filepath.Join(bare, "python3")); err != nil {
				t.Fatal(err)
			}
			env := []string{"PATH=" + bare}
			if tt.script != "" {
				env = withNvcc(t, tt.script)
			}
			job := Job{Payload: &schema.Payload{}, Environ: env, WorkDir: t.TempDir()}
			e := &evaluation{job: job, result: newResult(job)}
			p, err := e.prove(t.Context(), e.proveNative)
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("got %+v, %v, want %q", p, err, tt.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var checks []string
			for _, c := range p.Checks {
				if c.OK {
					checks = append(checks, "ok "+c.Name)
				} else {
					checks = append(checks, "FAIL "+c.Name+": "+c.Text)
				}
			}
			if got := strings.Join(checks, ", "); got != tt.checks || p.NotTried != tt.notTried {
				t.Errorf("got %q, not tried: %q, want %q, %q", got, p.NotTried, tt.checks, tt.notTried)
			}
		})
	}
}
