package engine

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// commitKey is the meta-data the first checkout of a build leaves.
const commitKey = "buildkite:git:commit"

var commitLine = regexp.MustCompile(`^commit ([0-9a-f]{40}|[0-9a-f]{64})`)

// SetMetaData sets build-wide values. Keys and values are not empty.
func (e *Engine) SetMetaData(buildID string, items map[string]string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.findBuildByID(buildID)
	if err != nil {
		return err
	}
	for key, value := range items {
		if key == "" || strings.TrimSpace(value) == "" {
			return refuse(Invalid, "meta-data %q: key and value must not be empty", key)
		}
		if len(value) > 100_000 {
			return refuse(Invalid, "meta-data %q: got %d bytes, want at most 100000", key, len(value))
		}
	}
	maps.Copy(b.MetaData, items)
	e.publish(EventBuildMetaData, b, nil, nil)
	if sha := commitLine.FindStringSubmatch(items[commitKey]); sha != nil {
		b.commit = sha[1]
	}
	return nil
}

// GetMetaData returns one value.
func (e *Engine) GetMetaData(buildID, key string) (string, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.findBuildByID(buildID)
	if err != nil {
		return "", false, err
	}
	value, ok := b.MetaData[key]
	return value, ok, nil
}

// MetaDataKeys returns the build's keys, sorted.
func (e *Engine) MetaDataKeys(buildID string) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.findBuildByID(buildID)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(b.MetaData)), nil
}
