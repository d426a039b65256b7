package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/near"
)

// maxFile bounds config and pins, in bytes.
const maxFile = 1 << 20

// ErrNotSetUp is returned where kbnode apply has not run.
var ErrNotSetUp = errors.New("this machine was not set up: there is no " + ConfigPath + "; kbnode apply FILE sets it up")

// ReadConfig reads [ConfigPath] below root. The error is [ErrNotSetUp] when there
// is no such file.
func ReadConfig(root string) (*Config, error) {
	var c Config
	err := readYAML(filepath.Join(root, ConfigPath), &c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNotSetUp
	case err != nil:
		return nil, fmt.Errorf("%s: %w", ConfigPath, err)
	case c.Version != Version:
		return nil, fmt.Errorf("%s: version: got %d, want %d: it was written by another kbnode; kbnode apply FILE writes it again", ConfigPath, c.Version, Version)
	}
	return &c, nil
}

// ReadPins reads [PinsPath] below root. A machine without one has no pins.
func ReadPins(root string) (*Pins, error) {
	p := Pins{Version: Version, Images: map[string]Pin{}}
	err := readYAML(filepath.Join(root, PinsPath), &p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &p, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", PinsPath, err)
	case p.Version != Version:
		return nil, fmt.Errorf("%s: version: got %d, want %d", PinsPath, p.Version, Version)
	}
	if p.Images == nil {
		p.Images = map[string]Pin{}
	}
	return &p, nil
}

func readYAML(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return err
	}
	if len(body) > maxFile {
		return fmt.Errorf("got more than %d bytes", maxFile)
	}
	dec := yaml.NewDecoder(bytes.NewReader(body))
	dec.KnownFields(true)
	if err := dec.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// AgentVersions describes the releases of buildkite-agent that [SupportsAgent] accepts.
const AgentVersions = "3.122 to 4"

// SupportsAgent reports whether kbnode can set up a release of buildkite-agent, "3.138.0".
func SupportsAgent(version string) bool {
	var major, minor int
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor) // else zero
	return major == 3 && minor >= 122 || major == 4
}

// Slot returns the slot of a name.
func (c *Config) Slot(name string) (*Slot, error) {
	var names []string
	for _, s := range c.Slots {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("slot: got %q, want %s", name, near.Perhaps(name, names))
}

// UsesDocker reports whether some slot starts containers.
func (c *Config) UsesDocker() bool {
	return slices.ContainsFunc(c.Slots, func(s *Slot) bool { return s.Platform == "docker" })
}

// HasVendor reports whether some slot has devices of a vendor.
func (c *Config) HasVendor(vendor string) bool {
	return slices.ContainsFunc(c.Slots, func(s *Slot) bool {
		return slices.ContainsFunc(s.Devices, func(d Device) bool { return d.Vendor == vendor })
	})
}

// Pick returns the slots of these names, all of them for no name.
func (c *Config) Pick(names []string) ([]*Slot, error) {
	if len(names) == 0 {
		return c.Slots, nil
	}
	var picked []*Slot
	var wrong []string
	for _, name := range names {
		s, err := c.Slot(name)
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		picked = append(picked, s)
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	return picked, nil
}

// A UsageError says that what the caller of kbnode asks for is wrong, and not the
// machine. Commands end with the exit status of wrong usage then.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a [*UsageError].
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// A HintError carries a command to type next.
type HintError struct {
	Err  error
	Hint string
}

func (e *HintError) Error() string { return e.Err.Error() }
func (e *HintError) Unwrap() error { return e.Err }
