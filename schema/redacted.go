package schema

import (
	"slices"
	"strings"
)

// redactedSuffixes end the names of variables whose values the agent takes for
// secrets.
//
// Source: buildkite-agent 3.138 and 4.0, the default of redacted-vars.
var redactedSuffixes = []string{
	"_PASSWORD", "_SECRET", "_TOKEN", "_PRIVATE_KEY", "_SSH_KEY", "_ACCESS_KEY", "_SECRET_KEY", "_CONNECTION_STRING", "_API_KEY",
}

// RedactedName reports whether the agent takes the value of a variable with this
// name for a secret: it hides the value in logs, and from version 4 on refuses
// to upload a pipeline that sets the variable, whatever its value is.
func RedactedName(name string) bool {
	return slices.ContainsFunc(redactedSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}
