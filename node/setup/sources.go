package setup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/apply"
	"github.com/gpu-mode/kbgen/node/plan"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/queuefile"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/schema/token"
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
	if self, err = filepath.EvalSymlinks(self); err != nil || self == plan.Program {
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

// stepsOfRows are the pipelines whose steps go to a row's agents.
var stepsOfRows = []string{"evaluate", "smoke", "isolation"}

// Rows returns kbgen's rows as a plan needs them.
func Rows() (map[string]plan.Row, error) {
	rows := map[string]plan.Row{}
	for _, g := range pipelines.Fleet {
		commands, err := rowCommands(g)
		if err != nil {
			return nil, err
		}
		rows[g.Name] = plan.Row{
			Name: g.Name, Vendor: string(g.Vendor), Slice: g.Slice, Platform: string(g.Platform), Queue: g.Queue, Image: g.Image,
			GPUs: g.GPUs, CPUs: g.CPUs, MemoryGiB: g.MemoryGiB, Timeout: g.Timeout, Commands: commands,
		}
	}
	return rows, nil
}

// rowCommands are what kbgen's steps run on a row that has no container, each as
// a job has it in BUILDKITE_COMMAND.
func rowCommands(g pipelines.GPUType) ([]string, error) {
	if g.Platform != pipelines.Host {
		return nil, nil
	}
	g.Off = "" // a row that is off now may be on tomorrow
	var commands []string
	for _, name := range stepsOfRows {
		p, err := pipelines.Find(name)
		if err != nil {
			return nil, err
		}
		if p.Serves != nil && !p.Serves(g) {
			continue
		}
		steps, err := p.Steps(pipelines.Request{GPUs: []pipelines.GPUType{g}, Secret: &pipelines.Run{}})
		if err != nil {
			return nil, err
		}
		for _, s := range steps {
			commands = append(commands, strings.Join(s.Command, "\n"))
		}
	}
	return commands, nil
}

const (
	minToken        = 16 // Buildkite's have more
	maxToken        = 1024
	buildkiteAgents = "https://agent.buildkite.com/v3"
)

// Token takes the agents' registration token from a file or an inherited descriptor,
// else from the machine below root, else from ask. Nil: there is none. A file that others
// can read gets a note.
func Token(root, file string, fd *int, ask func() ([]byte, error), note func(format string, args ...any)) ([]byte, error) {
	var raw []byte
	var err error
	from := file
	switch {
	case file != "":
		raw, err = readSmall(file)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
			note("note: %s has mode %04o, so that others can read the token: chmod 600 %[1]s", file, info.Mode().Perm())
		}
	case fd != nil:
		from = fmt.Sprintf("descriptor %d", *fd)
		if raw, err = readDescriptor(*fd); err != nil {
			return nil, err
		}
	default:
		from = node.TokenPath
		raw, err = readSmall(filepath.Join(root, node.TokenPath))
		if errors.Is(err, fs.ErrNotExist) {
			if ask == nil {
				return nil, nil
			}
			from = "the terminal"
			raw, err = ask()
		}
	}
	if err != nil {
		return nil, readable(fmt.Errorf("the agents' token: %w", err))
	}
	raw = bytes.TrimSpace(raw)
	if why := notToken(raw); why != "" {
		return nil, node.Usagef("the agents' token, from %s: got %s, want an agent token of the cluster; nothing was changed", from, why)
	}
	return raw, nil
}

// readDescriptor reads a descriptor that was inherited. Those that this process
// opened itself are closed for whatever it starts.
func readDescriptor(fd int) ([]byte, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil, node.Usagef("--token-fd: got %d, which is not open", fd)
	}
	f := os.NewFile(uintptr(fd), "the agents' token")
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxToken+1))
}

func readSmall(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxToken+1))
}

// notToken says what a text is that cannot be an agent's token; "" if it can.
func notToken(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "nothing"
	case len(raw) > maxToken:
		return fmt.Sprintf("more than %d bytes", maxToken)
	case bytes.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "something with spaces, line ends or other characters that no token has"
	case bytes.HasPrefix(raw, []byte("bkua_")):
		return "a Buildkite API token"
	case len(raw) < minToken:
		return fmt.Sprintf("%d characters", len(raw))
	}
	for _, found := range token.All(string(raw)) {
		if found.What != "a Buildkite agent token" {
			return found.What
		}
	}
	return ""
}

// CheckToken asks the agent API whether it takes the token. It registers nothing:
// what a token is can be asked with it alone. A service that cannot say so does not
// stand in the way: note gets a line that the token is not checked.
func CheckToken(ctx context.Context, endpoint string, raw []byte, note func(format string, args ...any)) error {
	endpoint = strings.TrimSuffix(cmp.Or(endpoint, buildkiteAgents), "/")
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return node.Usagef("--endpoint: got %s, want an http or https URL", text.Quote(endpoint))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/token", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Token "+string(raw))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		note("note: the token is not checked: %s does not answer: %s", endpoint, text.Line(err.Error(), 200))
		return nil
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s refuses the agents' token (status %d); nothing was changed", endpoint, answer.StatusCode)
	case http.StatusOK:
	default:
		note("note: the token is not checked: %s/token answers with status %d", endpoint, answer.StatusCode)
	}
	return nil
}
