package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/runner/agent"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets/refused"
)

// A sealed payload is opened by the broker of the machine, which alone has the
// key. That happens before anything of the submission is anywhere; the plain
// text is in this process's memory, which nobody may look into, and goes the way
// that a payload takes which came unsealed.

// openLimit bounds each of the two calls that open a payload.
const openLimit = 60 * time.Second

// errToken is a machine whose agent got no token for the job.
var errToken = errors.New("the job could not prove who it is")

// errSealed is a sealed payload where nobody can open one.
var errSealed = errors.New("the payload is sealed: evaluate opens it in the job of its run, by the node's broker")

// An Opener opens sealed payloads.
type Opener func(sealed string) (string, error)

// newOpener returns what opens them for the run by a broker's socket, in the job's time.
//
// Errors: *[refused.Refusal], [client.ErrNoBroker], [errToken]; what is kept of the
// payload is in none.
func newOpener(ctx context.Context, env Env, clock clock, broker, runID string) Opener {
	return func(sealed string) (string, error) {
		if plain, ok := strings.CutPrefix(sealed, schema.OpenedPrefix); ok { // by the machine, before this container
			return plain, nil
		}
		if why, ok := strings.CutPrefix(sealed, schema.RefusedPrefix); ok {
			reason, detail, _ := strings.Cut(why, ":")
			return "", fmt.Errorf("opening the payload: %w", &refused.Refusal{Name: schema.SealedPayloadName, Reason: refused.Reason(reason), Detail: detail})
		}
		request := client.Request{Name: schema.SealedPayloadName, Run: runID, Envelope: sealed}
		if agent.Missing(env.Getenv) == "" { // else the broker has to know the job by itself, or refuses
			path, err := agent.Find(env.Getenv)
			if err == nil {
				a := agent.Agent{Path: path, Environ: schema.WithoutPayload(env.Environ())}
				request.Token, err = a.Token(ctx, clock.left(openLimit), client.Audience, client.TokenClaims()...)
			}
			if err != nil {
				return "", fmt.Errorf("opening the payload: %w: %w", errToken, err)
			}
		}
		ask, stop := context.WithTimeout(ctx, clock.left(openLimit))
		defer stop()
		value, err := client.Get(ask, broker, request)
		if err != nil {
			return "", fmt.Errorf("opening the payload: %w", err)
		}
		return string(value), nil
	}
}

// sealed reports whether a payload is or was sealed.
func sealed(encoded string) bool {
	return strings.HasPrefix(encoded, schema.SealedPrefix) || strings.HasPrefix(encoded, schema.OpenedPrefix) || strings.HasPrefix(encoded, schema.RefusedPrefix)
}

// withoutNames takes the files' names out of what was run and put in place:
// everybody who may see the build can read its result, and nobody needs them to
// understand it.
func withoutNames(r *schema.Result, p *schema.Payload) {
	var names []string
	for _, f := range slices.Concat(p.Sources, p.Headers) {
		names = append(names, f.Name)
	}
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) }) // one may be part of another
	var pairs []string
	for _, name := range names {
		pairs = append(pairs, name, "[sealed]")
	}
	take := strings.NewReplacer(pairs...)
	if r.Versions != nil {
		for i := range r.Versions.Files { // whoever has a file can still find its digest here
			r.Versions.Files[i].Name = "[sealed]"
		}
	}
	for _, run := range r.Runs {
		if run.Compilation != nil {
			run.Compilation.Command = take.Replace(run.Compilation.Command)
		}
		if run.Run != nil {
			run.Run.Command = take.Replace(run.Run.Command)
		}
	}
}

// sealedElsewhere reports whether err is a payload that another machine may
// open: this one has no broker, not the key, or cannot prove its job. Whatever
// else is refused, the payload was made wrongly, and no machine opens it.
func sealedElsewhere(err error) bool {
	if why, ok := errors.AsType[*refused.Refusal](err); ok {
		return why.Reason == refused.UnknownRecipient || why.Reason == refused.Unproved || why.Reason == refused.Busy
	}
	return errors.Is(err, client.ErrNoBroker) || errors.Is(err, errToken)
}
