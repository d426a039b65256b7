package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// proofs runs kbrun prove in every slot with a GPU, all at once, and stores the proofs in
// node.ProofsDir, which jobs can read. If a proof is missing or says that a check failed,
// the result is a warning only, because tasks are then judged by their own harnesses.
func proofs(ctx context.Context, config *node.Config, slots []*node.Slot) (all []doctor.Result) {
	var trials []*findings
	var running sync.WaitGroup
	for _, s := range slots {
		if s.Platform != "docker" || !s.HasGPU() {
			continue
		}
		f := &findings{slot: s}
		trials = append(trials, f)
		running.Go(func() {
			switch p, err := prove(ctx, config, s); {
			case err != nil:
				f.add("proof", doctor.Warning, "kbnode verify "+s.Name, "nothing shows that the isolated harness works on its GPU: %v", err)
			case p.Failed() != "":
				f.add("proof", doctor.Warning, "kbnode verify "+s.Name, "the isolated harness does not work on its GPU: %s", p.Summary())
			default:
				f.passed("proof", "the isolated harness works on its GPU: %s", p.Summary())
			}
		})
	}
	running.Wait()
	for _, f := range trials {
		all = append(all, f.results...)
	}
	return all
}

// prove runs kbrun prove in a slot, and keeps the proof.
func prove(ctx context.Context, config *node.Config, s *node.Slot) (*schema.Proof, error) {
	dir, cmd, err := container(ctx, config, s, nil, "kbrun prove --out proof.json")
	if dir != "" {
		defer os.RemoveAll(dir)
	}
	if err != nil {
		return nil, err
	}
	said, runErr := cmd.CombinedOutput()
	raw, err := readJobFile(filepath.Join(dir, "proof.json"))
	if errors.Is(err, os.ErrNotExist) {
		lines := strings.Split(strings.TrimSpace(string(said)), "\n")
		return nil, fmt.Errorf("%v: %s", runErr, text.Line(lines[len(lines)-1], 200))
	}
	if err != nil {
		return nil, err
	}
	return keepProof(node.ProofsDir, raw)
}

// maxProof bounds a proof, in bytes.
const maxProof = 1 << 20

// readJobFile reads a file that a job's user has written, and follows no link.
func readJobFile(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxProof))
}

var uuid = regexp.MustCompile(`^[A-Za-z0-9-]{1,100}$`)

// keepProof writes a proof to a directory, named by the GPU's UUID.
//
// Error: it is no proof.
func keepProof(dir string, raw []byte) (*schema.Proof, error) {
	var p schema.Proof
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("kbrun prove wrote no proof: %w", err)
	}
	if !uuid.MatchString(p.UUID) {
		return nil, fmt.Errorf("kbrun prove wrote no proof: its UUID is %s", text.Quote(p.UUID))
	}
	out, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, p.UUID+".json")
	if err := renameio.WriteFile(file, append(out, '\n'), 0o644, renameio.WithTempDir(dir), renameio.IgnoreUmask()); err != nil {
		return nil, err
	}
	return &p, nil
}
