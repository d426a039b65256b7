package schema

// What Buildkite says about a build, as far as our programs ask.
const (
	EnvBuildID     = "BUILDKITE_BUILD_ID"     // UUID
	EnvStepID      = "BUILDKITE_STEP_ID"      // UUID, the same for every try of a step
	EnvBuildSource = "BUILDKITE_SOURCE"       // api, ui, webhook, schedule or trigger_job
	EnvPullRequest = "BUILDKITE_PULL_REQUEST" // a number, or "false"
)

// BuildVars are those that kbrun needs in a container whose step serves every
// build. None of them is secret.
var BuildVars = []string{EnvBuildID, EnvStepID, EnvBuildSource, EnvPullRequest}

// DerivedRunID is the id of a run whose launcher gave none, as Kernelbot's first
// one. The parts are the id of the build, and what tells its jobs apart and stays
// the same when one is tried again: its step or its GPU type.
func DerivedRunID(build string, parts ...string) string {
	id := "build-" + build
	for _, part := range parts {
		if part != "" {
			id += "." + part
		}
	}
	return id
}

// PushBuild reports whether a push or a pull request made the build, and no
// launcher: Buildkite's own hook, which sends no payload.
func PushBuild(lookup func(name string) (string, bool)) bool {
	source, _ := lookup(EnvBuildSource)
	request, _ := lookup(EnvPullRequest)
	return source == "webhook" || request != "" && request != "false"
}

// Idle reports whether a build that a push or a pull request made carries nothing
// to judge: no payload in any form, and no id of a run.
func Idle(lookup func(name string) (string, bool)) bool {
	if !PushBuild(lookup) {
		return false
	}
	for _, name := range PayloadVars() {
		for _, carrier := range []string{name, secretName(name)} {
			if value, _ := lookup(carrier); value != "" {
				return false
			}
		}
	}
	id, _ := lookup(EnvRunID)
	second, _ := lookup(SecretEnv(EnvRunID))
	return id == "" && second == ""
}

// secretName is SecretEnv for names that may be older than [EnvPrefix].
func secretName(name string) string {
	if name == EnvOldPayload {
		return name
	}
	return SecretEnv(name)
}
