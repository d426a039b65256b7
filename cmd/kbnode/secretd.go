package main

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node/broker"
	"github.com/gpu-mode/kbgen/templates"
)

// secretdCmd is the broker of secrets.
type secretdCmd struct {
	Config string `default:"/etc/kbnode/secretd.yml" placeholder:"FILE" help:"the config"`
	Socket string `default:"/run/kbnode/secretd.sock" placeholder:"PATH" help:"the socket to listen on, for the members of --group"`
	Group  string `placeholder:"NAME" xor:"who" help:"the group whose members may ask; default the group of the process"`
	Any    bool   `name:"any-user" xor:"who" help:"let any user ask; needs oidc, not host. For slots, whose users share no group"`
	Check  bool   `xor:"way" help:"read config and keys, describe them, and exit"`

	Unit       bool   `xor:"way" help:"print kbnode-secretd.service for --config, and exit"`
	SocketUnit bool   `xor:"way" help:"print kbnode-secretd.socket for --socket and --group, and exit"`
	Credential string `placeholder:"FILE" help:"with --unit: a key encrypted by systemd-creds for this machine; the config calls it secret.key"`
}

func (c *secretdCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Unit || c.SocketUnit {
		return c.units(env)
	}
	s := broker.Socket{Path: c.Socket, Group: c.Group, Any: c.Any, Handed: env.Getenv("LISTEN_FDS") != ""}
	b, about, err := broker.Configure(c.Config, env.Getenv("CREDENTIALS_DIRECTORY"), s.Open())
	if err != nil {
		return cli.Usagef("%s: %w", c.Config, err)
	}
	if c.Check {
		_, err := io.WriteString(env.Stdout, about)
		return err
	}
	b.Log = slog.New(slog.NewTextHandler(env.Stderr, nil))
	l, err := s.Listen()
	if err != nil {
		return public(err)
	}
	b.Log.Info("answering", "socket", l.Addr().String(), "keys", len(b.Keys))
	return b.Serve(ctx, l)
}

// units prints what systemd starts the broker by.
func (c *secretdCmd) units(env *cli.Env) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	s := templates.Secretd{Program: program, Config: c.Config, Credential: c.Credential, Socket: c.Socket, Group: cmp.Or(c.Group, "root"), AnyUser: c.Any}
	if c.Any {
		if _, _, err := broker.Configure(c.Config, env.Getenv("CREDENTIALS_DIRECTORY"), true); err != nil {
			return cli.Usagef("--any-user: %s: %w", c.Config, err)
		}
	}
	unit, err := s.Service()
	if c.SocketUnit {
		unit, err = s.SocketUnit()
	}
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	_, err = io.WriteString(env.Stdout, unit)
	return err
}
