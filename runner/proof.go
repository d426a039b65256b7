package runner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/harness"
	"github.com/gpu-mode/kbgen/runner/judge"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// proveLimit bounds a proof.
const proveLimit = 2 * time.Minute

// Prove finds out whether the isolated harness can be relied on for memory on this
// machine's first GPU, in Python and, if the machine has a compiler, in C++. It ignores
// the job's payload. An error in C++ is reported as a failed check.
//
// Error: there is no GPU; this machine cannot judge at all; ctx is over.
func Prove(ctx context.Context, job Job) (*schema.Proof, error) {
	caller := ctx
	ctx, stop := context.WithTimeoutCause(ctx, proveLimit, fmt.Errorf("the proof takes longer than %s", proveLimit))
	defer stop()
	job.Payload = &schema.Payload{} // harness.Prove has its own
	env := plan.Environ(job.Environ)
	e := &evaluation{job: job, result: newResult(job)}
	e.watch = probeDevices(ctx, job, env, e.result)
	defer e.watch.Close()
	gpu, err := e.gpu(env)
	if err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("becoming the reaper of the kernels' processes: %w", err)
	}
	python, err := e.prove(ctx, harness.Prove)
	if err != nil {
		return nil, err
	}
	gpu.Checks, gpu.Times, gpu.Resolution, gpu.Sandbox = python.Checks, python.Times, python.Resolution, python.Sandbox
	native, err := e.prove(ctx, e.proveNative)
	if caller.Err() != nil {
		return nil, err
	}
	if err != nil {
		native = &schema.Proof{Checks: []schema.ProofCheck{{Lang: schema.LangCUDA, Name: "harness", Text: text.Line(err.Error(), 500)}}}
	}
	gpu.Checks, gpu.Times, gpu.NotTried = append(gpu.Checks, native.Checks...), append(gpu.Times, native.Times...), native.NotTried
	return gpu, nil
}

// prove calls a function with the options of a session in a directory of its own. No
// process is left afterwards.
func (e *evaluation) prove(ctx context.Context, prove func(context.Context, harness.Options) (*schema.Proof, error)) (proof *schema.Proof, err error) {
	if e.root, err = os.MkdirTemp(e.job.WorkDir, "kbrun-prove-"); err != nil {
		return nil, fmt.Errorf("making the work directory: %w", err)
	}
	o, err := e.sessionOptions(plan.Environ(e.job.Environ))
	if err == nil {
		proof, err = prove(ctx, o)
	}
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err := errors.Join(err, sandbox.EndDescendants(killLimit), os.RemoveAll(e.root)); err != nil {
		return nil, err
	}
	return proof, nil
}

// proveNative is [harness.Prove] for C++. It compiles the programs.
func (e *evaluation) proveNative(ctx context.Context, o harness.Options) (*schema.Proof, error) {
	e.job.Payload = harness.NativeProof()
	e.machine = facts(e.job.Payload, e.root, e.job.Environ, e.result.System.Runtime, 1)
	begun := time.Now()
	e.build = &build{programs: map[string]string{}}
	r := phaseRun{evaluation: e, p: &plan.New(e.job.Payload, e.machine)[0]}
	if r.p.Refused != nil {
		return &schema.Proof{NotTried: r.p.Refused.Text}, nil
	}
	if err := e.openSandbox(); err != nil {
		return nil, err
	}
	if err := r.makePrograms(ctx); err != nil {
		return nil, err
	}
	for _, seen := range []*judge.Process{e.build.version, e.build.submission} {
		if seen.Failed() {
			return nil, errors.New(judge.CompileWords(r.p.Compiler, r.p.Compile, seen))
		}
	}
	if e.build.notMade != "" {
		return nil, errors.New(e.build.notMade)
	}
	compiled := schema.ProofCheck{
		Lang: schema.LangCUDA, Name: "compiler", OK: true, Text: r.p.Compiler + " has compiled judge, launcher and kernels",
		Seconds: float64(time.Since(begun).Milliseconds()) / 1000,
	}
	o.Python, o.Programs = "", e.build.programs
	proof, err := harness.Prove(ctx, o)
	if err == nil {
		proof.Checks = slices.Insert(proof.Checks, 0, compiled)
	}
	return proof, err
}

// gpu is what a proof names: this kbrun, and the machine's first GPU with its software.
func (e *evaluation) gpu(env []string) (*schema.Proof, error) {
	uuid, err := e.uuid()
	if err != nil {
		return nil, err
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, self); err != nil {
		return nil, err
	}
	return &schema.Proof{
		Time: time.Now().UTC().Truncate(time.Second), Runner: e.job.Version, Digest: hex.EncodeToString(sum.Sum(nil)),
		Device: e.watch.Visible()[0].Name, UUID: uuid, Driver: e.watch.Report().Driver, Torch: torchVersion(env),
	}, nil
}

// uuid names the machine's first GPU.
func (e *evaluation) uuid() (string, error) {
	seen := e.watch.Visible()
	if len(seen) == 0 || seen[0].UUID == "" {
		return "", errors.New("this machine shows no GPU that has a UUID")
	}
	return seen[0].UUID, nil
}

// proved returns "" if a valid proof shows that the isolated harness works on the GPU, and
// enters that proof in the result. Otherwise it returns the reason why only tasks that ask
// for the isolated harness get it.
func (e *evaluation) proved(ctx context.Context, env []string) string {
	if e.result.Harness.Proof != nil { // found before
		return ""
	}
	select {
	case <-e.probed:
	case <-ctx.Done():
		return context.Cause(ctx).Error()
	}
	uuid, err := e.uuid()
	if err != nil {
		return err.Error()
	}
	p, err := ReadProof(filepath.Join(cmp.Or(e.job.ProofDir, schema.ProofDir), filepath.Base(uuid)+".json"), 0)
	switch {
	case err != nil:
		return err.Error()
	case p.Failed(e.job.Payload.Lang) != "":
		return "kbrun prove failed on this GPU: " + text.Line(p.Failed(e.job.Payload.Lang), 300)
	}
	now, err := e.gpu(env)
	if err != nil {
		return err.Error()
	}
	for _, same := range []struct{ what, then, now string }{
		{"GPU", p.UUID, now.UUID}, {"kbrun", p.Digest, now.Digest}, {"driver", p.Driver, now.Driver}, {"torch", p.Torch, now.Torch},
	} {
		if same.then != same.now {
			return "the proof for this GPU is of another " + same.what + ": run kbrun prove again"
		}
	}
	e.result.Harness.Proof = p
	return ""
}

// ReadProof reads a proof. The file and its directory must belong to the user ID owner,
// and no other user may be able to write them.
//
// Errors: there is no such file; another user could have written it; it is not a proof.
func ReadProof(path string, owner uint32) (*schema.Proof, error) {
	for _, at := range []string{filepath.Dir(path), path} {
		info, err := os.Lstat(at)
		if errors.Is(err, os.ErrNotExist) {
			return nil, errors.New("nothing shows that the isolated harness works on this GPU: run kbrun prove")
		}
		if err != nil {
			return nil, err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || st.Uid != owner || info.Mode().Perm()&0o022 != 0 || at == path && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: want it to be owned by user %d and writable by no other user", at, owner)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var p schema.Proof
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("%s: not a proof: %w", path, err)
	}
	return &p, nil
}
