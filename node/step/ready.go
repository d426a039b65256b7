package step

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/docker"
)

// Ready returns an error unless the slot can run jobs: its TempDir must be writable,
// and the engine must answer through the slot's proxy. It runs as the agent's user, in the agent's unit, before the agent registers.
func Ready(ctx context.Context, s *node.Slot, root string, hasEngine bool) error {
	dir, err := os.MkdirTemp(filepath.Join(root, s.TempDir()), "ready-")
	if err != nil {
		return fmt.Errorf("slot %s: making a job's directory: %w", s.Name, err)
	}
	if err := os.Remove(dir); err != nil || !hasEngine {
		return err
	}
	if err := docker.New(filepath.Join(root, s.ProxySocket())).Do(ctx, http.MethodGet, "/version", nil, nil, nil); err != nil {
		return fmt.Errorf("slot %s: %w", s.Name, err)
	}
	return nil
}
