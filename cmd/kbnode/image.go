package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/docker"
	"github.com/gpu-mode/kbgen/node/drain"
	"github.com/gpu-mode/kbgen/node/image"
)

// imageCmds are about which image runs where a step names a reference.
type imageCmds struct {
	Status   imageStatusCmd   `cmd:""`
	Update   imageUpdateCmd   `cmd:""`
	Rollback imageRollbackCmd `cmd:""`
	Gc       imageGCCmd       `cmd:""`
}

// imageFlags say which machine's images.
type imageFlags struct {
	Engine string `placeholder:"PATH" help:"the engine's socket; default the config's"`
	Root   string `default:"/" placeholder:"DIR" help:"the config and pins lie below DIR; for tests"`
}

// manager is what keeps the pins, with a status for each reference of the slots'.
func (f *imageFlags) manager(env *cli.Env) (*image.Manager, []image.Status, error) {
	config, err := node.ReadConfig(f.Root)
	if err != nil {
		return nil, nil, err
	}
	socket := cmp.Or(f.Engine, config.Docker.Socket)
	if socket == "" {
		return nil, nil, fmt.Errorf("no slot of %s has docker", config.Node)
	}
	pins, err := node.ReadPins(f.Root)
	if err != nil {
		return nil, nil, err
	}
	return &image.Manager{
		Engine: docker.New(socket), Root: f.Root, Digests: config.Digests, AllowTags: config.AllowTags,
		Smoke: image.SmokeCommand, Now: time.Now, Log: logger(env),
	}, image.List(config, pins), nil
}

type imageStatusCmd struct {
	imageFlags
	JSON bool `name:"json" help:"print one JSON document; schema: schema/published/node-images.json"`
}

// nodeImages is --json of image status.
type nodeImages struct {
	Images []image.Status `json:"images"`
}

func (c *imageStatusCmd) Run(ctx context.Context, env *cli.Env) error {
	m, all, err := c.manager(env)
	if err != nil {
		return err
	}
	var faults []error
	for i := range all {
		faults = append(faults, m.Status(ctx, &all[i]))
		if !all[i].Present {
			faults = append(faults, fmt.Errorf("%s: no image of it can run: kbnode image update %[1]s", all[i].Reference))
		}
	}
	if c.JSON {
		err = cli.PrintJSON(env.Stdout, nodeImages{all})
	} else {
		err = printImages(env.Stdout, all)
	}
	return errors.Join(append(faults, err)...)
}

func printImages(w io.Writer, all []image.Status) error {
	_, err := fmt.Fprintf(w, "%-12s %-12s %-10s %6s  %s\n", "IMAGE", "PREVIOUS", "SINCE", "MIB", "REFERENCE")
	for _, s := range all {
		since := "-"
		if !s.At.IsZero() {
			since = s.At.Format(time.DateOnly)
		}
		_, err2 := fmt.Fprintf(w, "%-12s %-12s %-10s %6d  %s\n", cmp.Or(image.Short(s.ID), "-"), cmp.Or(image.Short(s.Previous), "-"), since, s.Bytes>>20, s.Reference)
		err = errors.Join(err, err2)
	}
	return err
}

type imageUpdateCmd struct {
	imageFlags
	References []string `arg:"" optional:"" name:"reference"`
	All        bool     `help:"update every reference of the slots, then run gc; skip images that rollback left and those taken with --local"`
	Local      bool     `help:"pull nothing, take the image that the engine has under this name"`
	Free       int64    `default:"20" placeholder:"GIB" help:"the free space that the engine's disk must keep"`
}

func (c *imageUpdateCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.All == (len(c.References) > 0) {
		return cli.Usagef("got not exactly one of references and --all")
	}
	m, all, err := c.manager(env)
	if err != nil {
		return err
	}
	m.LeastFree = c.Free << 30
	if c.All {
		c.References = image.References(all)
	}
	first, err := m.UpdateEach(ctx, all, c.References, c.Local, c.All)
	if first && c.Root == "/" {
		err = errors.Join(err, drain.StartAgents(ctx))
	}
	if c.All { // what the images before last held is needed now
		_, failed := m.Collect(ctx, c.References)
		err = errors.Join(err, failed)
	}
	return public(err)
}

type imageRollbackCmd struct {
	imageFlags
	Reference string `arg:""`
}

func (c *imageRollbackCmd) Run(ctx context.Context, env *cli.Env) error {
	m, _, err := c.manager(env)
	if err != nil {
		return err
	}
	return m.Rollback(ctx, c.Reference)
}

type imageGCCmd struct{ imageFlags }

func (c *imageGCCmd) Run(ctx context.Context, env *cli.Env) error {
	m, all, err := c.manager(env)
	if err != nil {
		return err
	}
	_, err = m.Collect(ctx, image.References(all))
	return err
}
