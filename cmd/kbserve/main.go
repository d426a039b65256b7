// Kbserve is the backend of a kernel competition: it takes submissions, has them
// evaluated on Buildkite, keeps every result, ranks and shows.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/database"
	"github.com/gpu-mode/kbgen/templates"
)

func main() { os.Exit(cli.Main(program())) }

type grammar struct {
	Serve      serveCmd      `cmd:""`
	Unit       unitCmd       `cmd:""`
	DB         dbCmd         `cmd:"" name:"db"`
	Board      boardCmd      `cmd:""`
	Limits     limitsCmd     `cmd:""`
	Invite     inviteCmd     `cmd:""`
	User       userCmd       `cmd:""`
	Submission submissionCmd `cmd:""`
	About      aboutCmd      `cmd:""`
	Accepting  acceptingCmd  `cmd:""`
	Stats      statsCmd      `cmd:""`
	Doctor     doctorCmd     `cmd:""`
	Selftest   selftestCmd   `cmd:""`
	Simulate   simulateCmd   `cmd:""`
}

func program() cli.Program {
	return cli.Program{Name: "kbserve", Grammar: &grammar{User: userCmd{Ban: userBanCmd{banned: true}}}, Help: help, Prepare: configured}
}

// A place is where a command works.
type place struct {
	Database string `var:"KBSERVE_DATABASE" default:"sqlite:kbserve.db" placeholder:"URL" help:"sqlite:FILE or postgres://USER@HOST/DB; put a password into the variable or PGPASSFILE, because other users can see command lines"`
	Config   string `var:"KBSERVE_CONFIG" placeholder:"FILE" help:"a file with lines NAME=value, which the environment overrides"` // read by configured, before anything else
}

// with opens the database for do.
func (d place) with(ctx context.Context, do func(*store.Store) error) error {
	s, err := open(ctx, d.Database)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// change has do change the database, and says on standard output that it is done.
func (d place) change(ctx context.Context, env *cli.Env, do func(*store.Store) error, said string, args ...any) error {
	err := d.with(ctx, do)
	if err == nil {
		fmt.Fprintf(env.Stdout, said+"\n", args...)
	}
	return err
}

func open(ctx context.Context, url string) (*store.Store, error) {
	s, err := store.Open(ctx, url)
	var version *database.VersionError
	if errors.As(err, &version) && version.Got < version.Want || errors.Is(err, fs.ErrNotExist) {
		err = cli.WithHint(err, "kbserve db migrate")
	}
	return s, err
}

type unitCmd struct {
	Config     string `default:"/etc/kbserve/kbserve.env" placeholder:"FILE" help:"a file with lines NAME=value"`
	Listen     string `default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"the address of the socket, or on the machine"`
	Program    string `placeholder:"FILE" help:"the path of kbserve; default this program"`
	Image      string `default:"kbserve:latest" placeholder:"NAME" help:"the image of the container"`
	Socket     bool   `xor:"what" help:"print the socket unit"`
	Compose    bool   `xor:"what" help:"print the compose file"`
	Dockerfile bool   `xor:"what" help:"print the image's recipe"`
}

func (c *unitCmd) Run(_ context.Context, env *cli.Env) error {
	if c.Program == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		c.Program = self
	}
	k := &templates.Kbserve{Program: c.Program, Config: c.Config, Listen: c.Listen, Image: c.Image}
	text := k.Service
	switch {
	case c.Socket:
		text = k.SocketUnit
	case c.Compose:
		text = k.Compose
	case c.Dockerfile:
		text = templates.KbserveDockerfile
	}
	out, err := text()
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	_, err = io.WriteString(env.Stdout, out)
	return err
}

const (
	varConfig = "KBSERVE_CONFIG"
	maxConfig = 1 << 20
)

// configured is the outside world with the variables of a configuration file
// beneath those of the environment. The file is named by --config or by
// KBSERVE_CONFIG.
func configured(env *cli.Env) (*cli.Env, error) {
	name := env.Getenv(varConfig)
	for i, arg := range env.Args {
		if arg == "--" {
			break
		}
		if value, found := strings.CutPrefix(arg, "--config="); found {
			name = value
		} else if arg == "--config" && i+1 < len(env.Args) {
			name = env.Args[i+1]
		}
	}
	if name == "" {
		return env, nil
	}
	data, err := cli.ReadInput(strings.NewReader(""), name, maxConfig)
	if err != nil {
		return env, &cli.UsageError{Err: fmt.Errorf("--config: %w", err)}
	}
	vars, err := parseConfig(data)
	if err != nil {
		return env, &cli.UsageError{Err: fmt.Errorf("--config: %s: %w", name, err)}
	}
	with := *env
	with.LookupEnv = func(name string) (string, bool) {
		if v, found := env.LookupEnv(name); found {
			return v, true
		}
		v, found := vars[name]
		return v, found
	}
	return &with, nil
}

// configNames are the variables that a file may set.
var configName = regexp.MustCompile(`^(KBSERVE|BUILDKITE)_[A-Z0-9_]+$`)

// parseConfig reads lines NAME=value, as systemd's EnvironmentFile and docker's
// env_file do: # begins a comment line, quotes around a value are taken off.
// No error quotes a value.
func parseConfig(data []byte) (map[string]string, error) {
	vars := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxConfig)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if len(value) >= 2 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
			value = value[1 : len(value)-1]
		}
		switch {
		case !found:
			return nil, fmt.Errorf("line %d: want NAME=value", n)
		case !configName.MatchString(name):
			return nil, fmt.Errorf("line %d: got %s, want a variable that begins with KBSERVE_ or BUILDKITE_", n, text.Quote(text.Shorten(name, 60)))
		case strings.HasPrefix(name, "KBSERVE_") && !known(name):
			return nil, fmt.Errorf("line %d: unknown variable %s; kbserve serve --help has those there are", n, name)
		}
		if _, twice := vars[name]; twice {
			return nil, fmt.Errorf("line %d: %s was set before", n, name)
		}
		vars[name] = value
	}
	return vars, lines.Err()
}

// known reports whether the help page of serve names the variable.
func known(name string) bool {
	for _, provider := range []string{"KBSERVE_GITHUB_", "KBSERVE_DISCORD_"} {
		if rest, found := strings.CutPrefix(name, provider); found {
			return rest == "CLIENT_ID" || rest == "CLIENT_SECRET"
		}
	}
	names := strings.FieldsFunc(program().Page("serve"), func(c rune) bool { return c != '_' && (c < 'A' || c > 'Z') })
	return slices.Contains(names, name)
}
