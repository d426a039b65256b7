package schema

// The docker plugin that steps name and nodes allow. tools/plugins.sh reads
// version and commit from here. Before v5.12.0 a failed image pull ends with
// exit status 0: a green job without a result.
const (
	PluginSource  = "github.com/buildkite-plugins/docker-buildkite-plugin"
	PluginVersion = "v5.13.0"
	PluginCommit  = "a9d13a0be3f15c37a66337a8ddc024870285e2cd" // of the tag, which can be moved
)
