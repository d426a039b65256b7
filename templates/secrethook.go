package templates

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A SecretHook is an agent's hook for pipelines that carry secrets in the old
// formats.
type SecretHook struct {
	Name    string    // "environment" or "pre-command"
	Allow   []Allowed // at least one for "environment"
	Socket  string    // of the node's broker; empty: its usual place
	NoToken bool      // the broker asks for none
}

// An Allowed is a pipeline that may have secrets, while it builds its own
// repository.
type Allowed struct {
	Pipeline   string // UUID in small letters
	Repository string // as BUILDKITE_REPO has it, in every letter
}

// secretHooks are the names of the hooks there are.
var secretHooks = []string{"environment", "pre-command"}

var (
	hookUUID       = form{text.Pattern(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`), "a UUID in small letters: slugs can be given away"}
	hookRepository = form{text.Pattern(`^[A-Za-z0-9@][A-Za-z0-9@:/._~+-]{0,499}$`), "a repository as BUILDKITE_REPO has it"}
	hookSocket     = form{text.Pattern(`^/[A-Za-z0-9/._-]{1,100}$`), "an absolute path"}
)

// Render returns the hook's text, for bash.
//
// Errors: *[PlaceholderError].
func (h SecretHook) Render() (string, error) {
	what := "hook " + h.Name
	var values []value
	var allow strings.Builder
	for _, a := range h.Allow {
		values = append(values, value{"pipeline", a.Pipeline, hookUUID}, value{"repository", a.Repository, hookRepository})
		fmt.Fprintf(&allow, "\t%s) repository='%s' ;;\n", a.Pipeline, a.Repository)
	}
	flags := ""
	if h.Socket != "" {
		values = append(values, value{"socket", h.Socket, hookSocket})
		flags = " --socket '" + h.Socket + "'"
	}
	if h.NoToken {
		flags += " --no-token"
	}
	switch {
	case !slices.Contains(secretHooks, h.Name):
		return "", &PlaceholderError{"hook", "name", h.Name, strings.Join(secretHooks, " or ")}
	case h.Name == "environment" && len(h.Allow) == 0:
		return "", &PlaceholderError{what, "allow", "", "at least one pipeline and its repository"}
	case h.Name != "environment" && len(h.Allow) > 0:
		return "", &PlaceholderError{what, "allow", h.Allow[0].Pipeline, "none: it looks at no pipeline"}
	}
	return fill("hooks/"+h.Name+".sh", what, values, "@ALLOW@", allow.String(), " @FLAGS@", flags, "@UNTRUSTED@", schema.EnvUntrusted)
}
