package engine

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// commitKey is the meta-data that the first checkout of a build sets.
const commitKey = "buildkite:git:commit"

var commitLine = regexp.MustCompile(`^commit ([0-9a-f]{40}|[0-9a-f]{64})`)

// MaxMetaData bounds one value, bytes. The service says 100 kilobytes.
const MaxMetaData = 100_000

// SetMetaData sets values that all jobs of a build can read. No key and no value
// may be empty.
func (e *Engine) SetMetaData(buildID string, items map[string]string) error {
	return change(e, e.findBuildByID, buildID, func(b *build) error {
		for key, value := range items {
			if key == "" || strings.TrimSpace(value) == "" {
				return Refuse(Invalid, "meta-data %q: key and value must not be empty", key)
			}
			if len(value) > MaxMetaData {
				return Refuse(Invalid, "meta-data %q: got %d bytes, want at most %d", key, len(value), MaxMetaData)
			}
		}
		maps.Copy(b.MetaData, items)
		e.publish(EventBuildMetaData, b, nil, nil)
		if sha := commitLine.FindStringSubmatch(items[commitKey]); sha != nil {
			b.commit = sha[1]
		}
		return nil
	})
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
	return query(e, e.findBuildByID, buildID, func(b *build) ([]string, error) {
		return slices.Sorted(maps.Keys(b.MetaData)), nil
	})
}
