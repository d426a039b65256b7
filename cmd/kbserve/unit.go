package main

import (
	"context"
	"io"
	"os"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/templates"
)

type unitCmd struct {
	Config     string `default:"/etc/kbserve/kbserve.env"`
	Listen     string `default:"127.0.0.1:8080"`
	Program    string
	Image      string `default:"kbserve:latest"`
	Socket     bool   `xor:"what"`
	Compose    bool   `xor:"what"`
	Dockerfile bool   `xor:"what"`
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
