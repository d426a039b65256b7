package secret

import (
	"context"
	"io"
	"strings"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/templates"
)

// hookCmd prints an agent's hook for the old formats.
type hookCmd struct {
	Name    string   `arg:""`
	Allow   []string `placeholder:"UUID=REPOSITORY" sep:"none" help:"a pipeline and the repository it builds, as BUILDKITE_REPO has it; may be repeated"`
	Socket  string   `placeholder:"PATH" help:"the broker's socket; default /run/kbnode/secretd.sock"`
	NoToken bool     `name:"no-token" help:"the broker asks for no token"`
}

func (c *hookCmd) Run(_ context.Context, env *cli.Env) error {
	h := templates.SecretHook{Name: c.Name, Socket: c.Socket, NoToken: c.NoToken}
	for _, pair := range c.Allow {
		pipeline, repository, ok := strings.Cut(pair, "=")
		if !ok {
			return cli.Usagef("--allow: got %q, want UUID=REPOSITORY", pair)
		}
		h.Allow = append(h.Allow, templates.Allowed{Pipeline: pipeline, Repository: repository})
	}
	text, err := h.Render()
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	_, err = io.WriteString(env.Stdout, text)
	return err
}
