// Kbserve is the backend of a kernel competition: it takes submissions, has them
// evaluated on Buildkite, keeps every result, ranks and shows.
package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
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
	Stats      statsCmd      `cmd:""`
	Doctor     doctorCmd     `cmd:""`
	Selftest   selftestCmd   `cmd:""`
}

func program() cli.Program {
	return cli.Program{Name: "kbserve", Grammar: &grammar{}, Help: help, Prepare: configured}
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
