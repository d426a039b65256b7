// Package seal reads the file that says for which queues payloads are sealed, and for
// whose keys. The launcher and the server take the same file.
package seal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets"
)

// A file says for which queues payloads are sealed, and for whose keys.
type file struct {
	Version      int              `yaml:"version"`
	Organization string           `yaml:"organization"` // UUID
	Pipeline     string           `yaml:"pipeline"`     // UUID
	Queues       map[string]queue `yaml:"queues"`       // by key; a queue that is not here gets payloads as they are
}

// A queue is one queue's nodes, and what a payload is bound to beside its
// run. Nodes without tokens prove no more than the pipeline.
type queue struct {
	Recipients string   `yaml:"recipients"` // file; relative to this one
	ID         string   `yaml:"id"`         // the queue's UUID, "": any queue
	Steps      []string `yaml:"steps"`
	Refs       []string `yaml:"refs"`
	Sources    []string `yaml:"sources"`
}

// margin is how far the clocks of launcher and node may be apart.
const margin = 10 * time.Minute

// For returns what seals payloads for a queue, nil when the file does not name it.
// What is sealed can be opened for life.
//
// Errors say what of the file cannot be used, before any build is made.
func For(name, key string, life time.Duration, now func() time.Time) (func(runID, encoded string) (string, error), error) {
	f, err := read(name)
	if err != nil {
		return nil, err
	}
	q, ok := f.Queues[key]
	if !ok {
		return nil, nil
	}
	to, err := q.recipients(filepath.Dir(name), now())
	if err != nil {
		return nil, fmt.Errorf("--seal: %s: queues: %s: recipients: %w", name, key, err)
	}
	b := secrets.Binding{Organization: f.Organization, Pipelines: []string{f.Pipeline}, Steps: q.Steps, Refs: q.Refs, Sources: q.Sources}
	if q.ID != "" {
		b.Queues = []string{q.ID}
	}
	seal := func(runID, encoded string) (string, error) {
		return secrets.SealPayload(encoded, runID, b, to, now(), life+margin)
	}
	if _, err := seal("trial", "x"); err != nil {
		return nil, fmt.Errorf("--seal: %s: %w", name, err)
	}
	return seal, nil
}

func (q queue) recipients(dir string, now time.Time) (secrets.Recipients, error) {
	if q.Recipients == "" {
		return nil, errors.New("got none, want a file of keys")
	}
	path := q.Recipients
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all, err := secrets.ParseRecipients(string(raw))
	if err != nil {
		return nil, err
	}
	return all.Current(now)
}

// Check reads the file with every queue's keys.
func Check(name string, now time.Time) error {
	f, err := read(name)
	if err != nil {
		return err
	}
	for key := range f.Queues {
		if _, err := For(name, key, time.Hour, func() time.Time { return now }); err != nil {
			return err
		}
	}
	return nil
}

func read(name string) (f file, err error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return f, fmt.Errorf("--seal: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return f, fmt.Errorf("--seal: %s: %s", name, text.Line(err.Error(), 300))
	}
	if f.Version != 1 {
		return f, fmt.Errorf("--seal: %s: version: got %d, want 1", name, f.Version)
	}
	if len(f.Queues) == 0 {
		return f, fmt.Errorf("--seal: %s: queues: got none", name)
	}
	return f, nil
}
