// Kbserve keeps the boards of a competition and who ranks on them. What stands of
// it so far is the database and what an operator does to it; it serves nothing yet.
package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/store"
)

func main() { os.Exit(cli.Main(program())) }

type grammar struct {
	DB         dbCmd         `cmd:"" name:"db"`
	Board      boardCmd      `cmd:""`
	Limits     limitsCmd     `cmd:""`
	Invite     inviteCmd     `cmd:""`
	User       userCmd       `cmd:""`
	Submission submissionCmd `cmd:""`
	Stats      statsCmd      `cmd:""`
	Doctor     doctorCmd     `cmd:""`
}

func program() cli.Program {
	return cli.Program{Name: "kbserve", Grammar: &grammar{}, Help: help}
}

// database is where a command works.
type database struct {
	Database string `var:"KBSERVE_DATABASE" default:"sqlite:kbserve.db"`
}

// with opens the database for do.
func (d database) with(ctx context.Context, do func(*store.Store) error) error {
	s, err := open(ctx, d.Database)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

func open(ctx context.Context, url string) (*store.Store, error) {
	s, err := store.Open(ctx, url)
	var version *store.VersionError
	if errors.As(err, &version) && version.Got < version.Want || errors.Is(err, fs.ErrNotExist) {
		err = cli.WithHint(err, "kbserve db migrate")
	}
	return s, err
}
