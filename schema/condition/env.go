package condition

import (
	"errors"
	"fmt"
	"strings"
)

// derived are the standard variables that say the same as a variable of the
// expression language, for build.env.
var derived = map[string]string{
	"BUILDKITE_BRANCH":                   "build.branch",
	"BUILDKITE_TAG":                      "build.tag",
	"BUILDKITE_MESSAGE":                  "build.message",
	"BUILDKITE_COMMIT":                   "build.commit",
	"BUILDKITE_PIPELINE_SLUG":            "pipeline.slug",
	"BUILDKITE_PIPELINE_ID":              "pipeline.id",
	"BUILDKITE_ORGANIZATION_SLUG":        "organization.slug",
	"BUILDKITE_REPO":                     "pipeline.repository",
	"BUILDKITE_PULL_REQUEST":             "build.pull_request.id",
	"BUILDKITE_PULL_REQUEST_BASE_BRANCH": "build.pull_request.base_branch",
	"BUILDKITE_PULL_REQUEST_REPO":        "build.pull_request.repository",
}

// absent are the standard variables build.env may read that no build of the
// stand-in has unless its env sets them.
var absent = []string{
	"BUILDKITE_TRIGGERED_FROM_BUILD_", "BUILDKITE_REBUILT_FROM_BUILD_", "BUILDKITE_GITHUB_",
}

// env reads an environment variable; null when it is not set.
//
// Errors: an empty name, and a BUILDKITE_ variable that conditions cannot
// read, for most of them belong to jobs.
func (v Vars) env(name string) (value, error) {
	if strings.TrimSpace(name) == "" {
		return value{}, errors.New("got an empty name, want that of a variable")
	}
	if set, ok := v.Env[name]; ok {
		return value{kind: kindString, text: set}, nil
	}
	if !strings.HasPrefix(name, "BUILDKITE_") {
		return value{}, nil
	}
	if from, ok := derived[name]; ok {
		out, err := valueOf(v.Values[from])
		if name == "BUILDKITE_PULL_REQUEST" && out.kind == kindNull {
			out = value{kind: kindString, text: "false"}
		}
		return out, err
	}
	for _, prefix := range absent {
		if strings.HasPrefix(name, prefix) {
			return value{}, nil
		}
	}
	if name == "BUILDKITE_PIPELINE_NAME" {
		return value{}, fmt.Errorf("kblocal does not implement %s in conditions, use pipeline.slug", name)
	}
	return value{}, fmt.Errorf("conditions cannot read %s: it is known when a job runs", name)
}
