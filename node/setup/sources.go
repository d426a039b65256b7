package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/apply"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/queuefile"
)

// jwksPath is where agents find the keys of signed steps.
const jwksPath = "/etc/kbnode/verification.json"

// publicKeys reads a JSON Web Key Set that everybody may read.
func publicKeys(name string) ([]byte, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []map[string]any `json:"keys"`
	}
	if err := json.Unmarshal(raw, &set); err != nil || len(set.Keys) == 0 {
		return nil, node.Usagef("--verification-jwks: %s: got no JSON with at least one key in \"keys\"", name)
	}
	for i, k := range set.Keys {
		for _, private := range []string{"d", "k", "p", "q"} {
			if _, ok := k[private]; ok {
				return nil, node.Usagef("--verification-jwks: %s: keys[%d]: got a private key, want public ones: all on the machine can read them", name, i)
			}
		}
	}
	return raw, nil
}

// program is this one, which the units run.
func program(in *plan.Input) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil || self == plan.DefaultProgram {
		return err
	}
	in.ProgramFrom = self
	in.ProgramSHA256, err = apply.HashFile(self)
	return err
}

var (
	isSHA256     = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)
	agentVersion = regexp.MustCompile(`^buildkite-agent version (\d+\.\d+\.\d+)`)
)

// agent is the one that is given, which must be what its hash says.
func (t *Target) agent(ctx context.Context, in *plan.Input) error {
	switch {
	case t.Agent == "" && t.AgentSHA256 == "":
		return nil
	case t.Agent == "" || !isSHA256.MatchString(t.AgentSHA256):
		return node.Usagef("--agent and --agent-sha256: got %q and %q, want a file and the 64 hexadecimal digits of its hash", t.Agent, t.AgentSHA256)
	}
	from, err := filepath.Abs(t.Agent)
	if err != nil {
		return err
	}
	sum, err := apply.HashFile(from)
	if err != nil {
		return err
	}
	if sum != strings.ToLower(t.AgentSHA256) {
		return node.Usagef("--agent: %s: got SHA-256 %s, want %s", t.Agent, sum, t.AgentSHA256)
	}
	out, err := system.Run(ctx, from, "--version")
	if err != nil {
		return fmt.Errorf("--agent: %s: %w", t.Agent, err)
	}
	version := agentVersion.FindSubmatch(out)
	if version == nil {
		return node.Usagef("--agent: %s: got a program that does not say it is buildkite-agent", t.Agent)
	}
	in.AgentFrom, in.AgentSHA256, in.AgentVersion = from, sum, string(version[1])
	return nil
}

// ReadQueueFile reads a queue file that [queuefile.Check] finds no error in. The error
// is the first of them. If allowSmall is set, machines may be smaller than they should
// be; what they lack is returned, a line each.
func ReadQueueFile(path string, allowSmall bool) (file *queuefile.File, small []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	doc, err := io.ReadAll(io.LimitReader(f, queuefile.MaxSize+1))
	if err != nil {
		return nil, nil, err
	}
	file, faults := queuefile.Decode(path, doc)
	for _, fault := range append(faults, queuefile.Check([]*queuefile.File{file}, pipelines.Fleet.Requirements())...) {
		switch {
		case fault.Severity != schema.SeverityError:
		case allowSmall && file.Small(fault):
			small = append(small, fault.Error())
		default:
			return nil, nil, fmt.Errorf("%w (kbgen vendor check lists all)", fault)
		}
	}
	return file, small, nil
}
