package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/engine"
	"github.com/gpu-mode/kbgen/node/image"
	"github.com/gpu-mode/kbgen/node/system"
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
	Engine string `placeholder:"PATH"`
	Root   string `default:"/" placeholder:"DIR"`
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
	var all []image.Status
	for _, s := range config.Slots {
		for _, ref := range s.Images {
			at := slices.IndexFunc(all, func(one image.Status) bool { return one.Reference == ref })
			if at < 0 {
				p := pins.Images[ref]
				all = append(all, image.Status{Reference: ref, ID: p.ID, Digest: p.Digest, Previous: p.Previous, Held: p.Held, At: p.At})
				at = len(all) - 1
			}
			all[at].Slots = append(all[at].Slots, s.Name)
		}
	}
	return &image.Manager{
		Engine: engine.New(socket), Root: f.Root, Smoke: image.SmokeCommand, Now: time.Now,
		Log: logger(env),
	}, all, nil
}

func references(all []image.Status) []string {
	var out []string
	for _, one := range all {
		out = append(out, one.Reference)
	}
	return out
}

type imageStatusCmd struct {
	imageFlags
	JSON bool `name:"json"`
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
	All        bool
	Local      bool
	Free       int64 `default:"20" placeholder:"GIB"`
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
	known := references(all)
	if c.All {
		c.References = known
	}
	var faults []error
	first := false // a reference has an image that had none
	for _, ref := range c.References {
		if !slices.Contains(known, ref) {
			faults = append(faults, cli.Usagef("image %q: no slot's step may name it, have %q", ref, known))
			continue
		}
		now := all[slices.Index(known, ref)]
		byHand := c.All && now.ID != "" && now.Digest == "" // no registry has it
		changed, err := m.Update(ctx, ref, c.Local || byHand, c.All)
		faults = append(faults, err)
		if err == nil && !changed {
			m.Log("%s: nothing to do", ref)
		}
		first = first || changed && now.ID == ""
	}
	if first && c.Root == "/" {
		faults = append(faults, startWaiting(ctx))
	}
	if c.All { // what the images before last held is needed now
		removed, err := m.Collect(ctx, known)
		faults = append(faults, err)
		logRemoved(m, removed)
	}
	return errors.Join(faults...)
}

// startWaiting starts the agents that waited for an image. One that is paused stays
// so: its unit's condition sees to it.
func startWaiting(ctx context.Context) error {
	config, err := node.ReadConfig("/")
	if err != nil {
		return err
	}
	args := []string{"start"}
	for i := range config.Slots {
		if config.Slots[i].Platform == "docker" {
			args = append(args, config.Slots[i].Unit())
		}
	}
	if _, err := system.Run(ctx, "systemctl", args...); err != nil {
		return fmt.Errorf("the image is there, and agents do not start: %w; kbnode doctor says why", err)
	}
	return nil
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
	removed, err := m.Collect(ctx, references(all))
	logRemoved(m, removed)
	return err
}

func logRemoved(m *image.Manager, removed []string) {
	for _, id := range removed {
		m.Log("removed image %s", image.Short(id))
	}
}
