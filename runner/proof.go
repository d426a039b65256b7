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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/harness"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// proveLimit bounds a proof.
const proveLimit = 2 * time.Minute

// Prove finds out whether the isolated harness can be relied on for tensors on this
// machine's first GPU. Of the job it needs what a payload does not say.
//
// Error: there is no GPU; this machine cannot judge at all; ctx is over.
func Prove(ctx context.Context, job Job) (*schema.Proof, error) {
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
	if e.root, err = os.MkdirTemp(job.WorkDir, "kbrun-prove-"); err != nil {
		return nil, fmt.Errorf("making the work directory: %w", err)
	}
	o, err := e.sessionOptions(env)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(e.root))
	}
	proof, err := harness.Prove(ctx, o)
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err := errors.Join(err, sandbox.EndDescendants(killLimit), os.RemoveAll(e.root)); err != nil {
		return nil, err
	}
	gpu.Checks, gpu.Times, gpu.Resolution, gpu.Sandbox = proof.Checks, proof.Times, proof.Resolution, proof.Sandbox
	return gpu, nil
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
	case p.Failed() != "":
		return "kbrun prove failed on this GPU: " + text.Line(p.Failed(), 300)
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
