package apply

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// stage shows systemd unit files in a directory of their own.
func (m *Machine) stage(ctx context.Context, files map[string][]byte) error {
	dir, err := os.MkdirTemp("", "kbnode-units-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, files[name], 0o644); err != nil {
			return err
		}
	}
	instances, err := instantiate(dir, names)
	if err != nil {
		return err
	}
	faults, err := m.Systemd.Verify(ctx, dir, slices.Concat(names, instances))
	if err != nil {
		return fmt.Errorf("asking systemd about the units: %w", err)
	}
	if len(faults) > 0 {
		return fmt.Errorf("systemd does not take the units, and nothing was changed:\n  %s", strings.Join(faults, "\n  "))
	}
	return nil
}

// instantiate makes the instances that have files of their own, which nothing
// else would look at.
func instantiate(dir string, names []string) ([]string, error) {
	var instances []string
	for _, name := range names {
		unit := strings.TrimSuffix(filepath.Dir(name), ".d")
		before, after, ok := strings.Cut(unit, "@")
		template := before + "@" + filepath.Ext(after)
		if !ok || !slices.Contains(names, template) || slices.Contains(instances, unit) {
			continue
		}
		if err := os.Symlink(template, filepath.Join(dir, unit)); err != nil {
			return nil, err
		}
		instances = append(instances, unit)
	}
	return instances, nil
}
