package apply

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/resource"
)

// Seeds are what Kernelbot's older scripts set up on a machine: agents on the
// host, all with every GPU and a token that everybody may read.
type Seeds struct {
	Units   []string // agents
	Configs []string // files that hold a token
	Token   []byte   // the first of them; nil: none
}

var (
	seedUnits   = []string{"buildkite-agent-gpu*.service", "buildkite-agent@gpu*.service"}
	seedConfigs = []string{"/etc/buildkite-agent/token", "/etc/buildkite-agent/buildkite-agent*.cfg"}
	seedToken   = regexp.MustCompile(`(?m)^\s*token\s*=\s*"?([^"\s]+)"?\s*$`)
)

// Seeds recognises them by the names of their files.
func (m *Machine) Seeds() (*Seeds, error) {
	s := &Seeds{}
	for _, pattern := range seedUnits {
		for _, dir := range []string{node.UnitDir, node.UnitDir + "/*.wants"} { // an instance of a template is a link only
			found, err := filepath.Glob(m.path(dir + "/" + pattern))
			if err != nil {
				return nil, err
			}
			for _, name := range found {
				s.Units = append(s.Units, filepath.Base(name))
			}
		}
	}
	slices.Sort(s.Units)
	s.Units = slices.Compact(s.Units)
	for _, pattern := range seedConfigs {
		found, err := filepath.Glob(m.path(pattern))
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			if err := s.config(m, name); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *Seeds) config(m *Machine, name string) error {
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrPermission) { // somebody tightened it, and we are not root
		return nil
	}
	if err != nil {
		return err
	}
	token := bytes.TrimSpace(content)
	if filepath.Ext(name) == ".cfg" {
		found := seedToken.FindSubmatch(content)
		if found == nil || bytes.HasPrefix(found[1], []byte("$")) || bytes.Equal(found[1], []byte("xxx")) {
			return nil // its template's, or a variable
		}
		token = found[1]
	}
	if len(token) == 0 {
		return nil
	}
	if s.Token == nil {
		s.Token = token
	}
	rel, err := filepath.Rel(m.Root, name)
	s.Configs = append(s.Configs, "/"+strings.TrimPrefix(rel, "/"))
	return err
}

// Takes are what is taken over: the agents must not run, and nobody but root reads
// their tokens.
func (m *Machine) Takes(s *Seeds) (off []string, files []resource.File, err error) {
	for _, name := range s.Configs {
		content, err := os.ReadFile(m.path(name))
		if err != nil {
			return nil, nil, err
		}
		files = append(files, resource.File{Path: name, Mode: 0o600, Owner: "root", Group: "root", Content: content, Secret: true, Foreign: true})
	}
	return s.Units, files, nil
}
