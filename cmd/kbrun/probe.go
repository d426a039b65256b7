package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/runner/device"
)

// probeCmd is not for people: kbrun calls itself, or the build of it that has
// NVML inside, to ask NVIDIA's driver. See package device.
type probeCmd struct {
	Serve bool
}

// Run detaches the process that does the work and ends; with --serve it is
// that process.
func (c *probeCmd) Run(_ context.Context, env *cli.Env) error {
	if c.Serve {
		return device.Serve(env.Stdin, env.Stdout, device.SampleInterval)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return device.Detach([]string{self, probeName, "--serve"}, env.Environ())
}

const (
	probeName = "device-probe"
	// withNVML is the name of the build with NVML, beside this program.
	withNVML = "kbrun-nvml"
)

// machine says how to probe for devices from here.
func machine() device.Machine {
	m := device.Machine{OneShot: os.Getpid() == 1} // an orphan would come back as a child
	self, err := os.Executable()
	if err != nil {
		return m
	}
	beside := filepath.Join(filepath.Dir(self), withNVML)
	if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
		m.Probe = []string{beside, probeName}
	} else if device.HasNVML {
		m.Probe = []string{self, probeName}
	}
	return m
}
