package pipeline

import (
	"slices"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

// The rules know the version of the docker plugin that steps name.
func TestDockerTableHasPinnedVersion(t *testing.T) {
	if got := pluginTables["docker"].versions; !slices.Contains(got, schema.PluginVersion) {
		t.Errorf("the docker plugin's table lacks %s", schema.PluginVersion)
	}
}
