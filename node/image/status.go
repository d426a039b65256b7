package image

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/docker"
)

// A Status is how a reference stands.
type Status struct {
	Reference string    `json:"reference" jsonschema:"as steps write it"`
	ID        string    `json:"id" jsonschema:"of the image that runs for it, empty when none is pinned"`
	Digest    string    `json:"digest" jsonschema:"the registry's name of it, empty for one that was loaded by hand"`
	Previous  string    `json:"previous" jsonschema:"the ID that rollback goes back to, or empty"`
	Held      string    `json:"held" jsonschema:"an ID that the timer does not take, for rollback went back from it"`
	At        time.Time `json:"at" jsonschema:"since when"`
	Present   bool      `json:"present" jsonschema:"whether the engine has the image"`
	Bytes     int64     `json:"bytes" jsonschema:"its size, 0 when it is not there"`
	Slots     []string  `json:"slots" jsonschema:"whose steps may name it"`
}

// Status says how a reference stands, as the pins and the engine have it.
func (m *Manager) Status(ctx context.Context, s *Status) error {
	if s.ID == "" {
		return nil
	}
	d, err := m.inspect(ctx, s.ID)
	if docker.Is(err, http.StatusNotFound) {
		return nil
	}
	s.Present, s.Bytes = err == nil, d.Size
	return err
}

// List returns a status for each reference of the slots', as the pins have it.
func List(config *node.Config, pins *node.Pins) []Status {
	var all []Status
	for _, s := range config.Slots {
		for _, ref := range s.Images {
			at := slices.IndexFunc(all, func(one Status) bool { return one.Reference == ref })
			if at < 0 {
				p := pins.Images[ref]
				all = append(all, Status{Reference: ref, ID: p.ID, Digest: p.Digest, Previous: p.Previous, Held: p.Held, At: p.At})
				at = len(all) - 1
			}
			all[at].Slots = append(all[at].Slots, s.Name)
		}
	}
	return all
}

// References returns the references of statuses.
func References(all []Status) []string {
	var out []string
	for _, one := range all {
		out = append(out, one.Reference)
	}
	return out
}
