package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/secrets"
)

// A sealFile says for which queues payloads are sealed, and for whose keys.
type sealFile struct {
	Version      int                  `yaml:"version"`
	Organization string               `yaml:"organization"` // UUID
	Pipeline     string               `yaml:"pipeline"`     // UUID
	Queues       map[string]sealQueue `yaml:"queues"`       // by key; a queue that is not here gets payloads as they are
}

// A sealQueue is one queue's nodes, and what a payload is bound to beside its
// run. Nodes without tokens prove no more than the pipeline.
type sealQueue struct {
	Recipients string   `yaml:"recipients"` // file; relative to this one
	ID         string   `yaml:"id"`         // the queue's UUID, "": any queue
	Steps      []string `yaml:"steps"`
	Refs       []string `yaml:"refs"`
	Sources    []string `yaml:"sources"`
}

// sealMargin is how far the clocks of launcher and node may be apart.
const sealMargin = 10 * time.Minute

// sealer returns what seals payloads for a queue, nil when the file does not
// name it.
//
// Errors say what of the file cannot be used, before any build is made.
func sealer(name, queue string, life time.Duration, now func() time.Time) (func(runID, encoded string) (string, error), error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--seal: %w", err)
	}
	var f sealFile
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("--seal: %s: %s", name, text.Line(err.Error(), 300))
	}
	if f.Version != 1 {
		return nil, fmt.Errorf("--seal: %s: version: got %d, want 1", name, f.Version)
	}
	if len(f.Queues) == 0 {
		return nil, fmt.Errorf("--seal: %s: queues: got none", name)
	}
	q, ok := f.Queues[queue]
	if !ok {
		return nil, nil
	}
	to, err := q.recipients(filepath.Dir(name), now())
	if err != nil {
		return nil, fmt.Errorf("--seal: %s: queues: %s: recipients: %w", name, queue, err)
	}
	b := secrets.Binding{Organization: f.Organization, Pipelines: []string{f.Pipeline}, Steps: q.Steps, Refs: q.Refs, Sources: q.Sources}
	if q.ID != "" {
		b.Queues = []string{q.ID}
	}
	seal := func(runID, encoded string) (string, error) {
		return secrets.SealPayload(encoded, runID, b, to, now(), life+sealMargin)
	}
	if _, err := seal("trial", "x"); err != nil {
		return nil, fmt.Errorf("--seal: %s: %w", name, err)
	}
	return seal, nil
}

func (q sealQueue) recipients(dir string, now time.Time) (secrets.Recipients, error) {
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

// seal returns what seals this submission, nil when nobody asks for it.
func (s *submitCmd) seal(env *cli.Env, queue string, runTimeout time.Duration) (func(runID, encoded string) (string, error), error) {
	if s.Seal == "" {
		return nil, nil
	}
	seal, err := sealer(s.Seal, queue, s.QueueTimeout+runTimeout, time.Now)
	if err == nil && seal == nil {
		fmt.Fprintf(env.Stderr, "kblaunch: note: %s does not name queue %s: whoever may see the build can read this submission\n", s.Seal, queue)
	}
	return seal, err
}
