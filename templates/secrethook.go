package templates

import (
	"embed"
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

//go:embed hooks
var hookFiles embed.FS

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
	hookUUID       = text.Pattern(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	hookRepository = text.Pattern(`^[A-Za-z0-9@][A-Za-z0-9@:/._~+-]{0,499}$`)
	hookSocket     = text.Pattern(`^/[A-Za-z0-9/._-]{1,100}$`)
)

// Render returns the hook's text, for bash.
//
// Errors: *[PlaceholderError].
func (h SecretHook) Render() (string, error) {
	what := "hook " + h.Name
	var allow strings.Builder
	for _, a := range h.Allow {
		if err := fits(what, "pipeline", a.Pipeline, hookUUID, "a UUID in small letters: slugs can be given away"); err != nil {
			return "", err
		}
		if err := fits(what, "repository", a.Repository, hookRepository, "a repository as BUILDKITE_REPO has it"); err != nil {
			return "", err
		}
		fmt.Fprintf(&allow, "\t%s) repository='%s' ;;\n", a.Pipeline, a.Repository)
	}
	flags := ""
	if h.Socket != "" {
		if err := fits(what, "socket", h.Socket, hookSocket, "an absolute path"); err != nil {
			return "", err
		}
		flags = " --socket '" + h.Socket + "'"
	}
	if h.NoToken {
		flags += " --no-token"
	}
	switch {
	case h.Name == "environment" && len(h.Allow) == 0:
		return "", &PlaceholderError{what, "allow", "", "at least one pipeline and its repository"}
	case h.Name != "environment" && len(h.Allow) > 0:
		return "", &PlaceholderError{what, "allow", h.Allow[0].Pipeline, "none: it looks at no pipeline"}
	}
	body, err := hookFiles.ReadFile("hooks/" + h.Name + ".sh")
	if err != nil {
		return "", &PlaceholderError{"hook", "name", h.Name, strings.Join(secretHooks, " or ")}
	}
	return strings.NewReplacer("@ALLOW@", allow.String(), " @FLAGS@", flags, "@UNTRUSTED@", schema.EnvUntrusted).Replace(string(body)), nil
}
