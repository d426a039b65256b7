package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets/refused"
)

// UnsealLimit bounds each of the two calls that open a payload.
const UnsealLimit = 30 * time.Second

// carrierNames are the commands for which a payload is opened, with the names of the
// variables that carry it: what pipeline evaluate runs, letter for letter. Any other
// command could print what it is given.
var carrierNames = map[string]func(string) string{
	"exec kbrun evaluate": func(name string) string { return name },
	"exec kbrun evaluate --secret": func(name string) string {
		if !strings.HasPrefix(name, schema.EnvPrefix) {
			return "" // older names have no second run
		}
		return schema.SecretEnv(name)
	},
}

// A TokenSource asks the agent for a token of the job that runs in an environment.
type TokenSource func(ctx context.Context, environ []string) (string, error)

// Unseal returns a job's environment in which a sealed payload is as it was. The job's
// container has neither a broker to ask nor the agent to prove who it is; here are
// both, and nothing of a submission. What the broker refuses is said in the
// payload's place, so that kbrun writes it into the result. Whatever else goes wrong
// is the error, and leaves the payload sealed: kbrun then says that this machine opens
// none, and the job is tried on another.
func Unseal(ctx context.Context, socket string, environ []string, token TokenSource) ([]string, error) {
	command, _ := entry(environ, "BUILDKITE_COMMAND")
	name := carrierNames[command]
	if name == nil {
		return environ, nil
	}
	lookup := func(carrier string) (string, bool) { return entry(environ, name(carrier)) }
	sealed, err := schema.FindPayload(lookup)
	if err != nil || !strings.HasPrefix(sealed, schema.SealedPrefix) {
		return environ, nil // kbrun says what is wrong with it
	}
	run, _ := lookup(schema.EnvRunID)
	text, err := open(ctx, socket, environ, token, sealed, run)
	var carriers map[string]string
	if err == nil {
		carriers, err = schema.ReplacePayload(lookup, text)
	}
	if err != nil {
		return environ, err
	}
	environ = slices.Clone(environ)
	for i, pair := range environ {
		have, _, _ := strings.Cut(pair, "=")
		for carrier, value := range carriers {
			if have == name(carrier) {
				environ[i] = have + "=" + value
			}
		}
	}
	return environ, nil
}

// open asks the broker. A refusal is an answer.
//
// Errors: [os.ErrNotExist] without a broker; [client.ErrNoBroker]; no token.
func open(ctx context.Context, socket string, environ []string, token TokenSource, sealed, run string) (string, error) {
	if _, err := os.Stat(socket); err != nil {
		return "", fmt.Errorf("this node has no broker: %w", err)
	}
	proof, err := token(ctx, environ)
	if err != nil {
		return "", err
	}
	ask, stop := context.WithTimeout(ctx, UnsealLimit)
	defer stop()
	value, err := client.Get(ask, socket, client.Request{Name: schema.SealedPayloadName, Run: run, Envelope: sealed, Token: proof})
	if why := (*refused.Refusal)(nil); errors.As(err, &why) {
		return schema.RefusedPrefix + string(why.Reason) + ":" + why.Detail, nil
	}
	return schema.OpenedPrefix + string(value), err
}

// entry looks one variable of an environment up.
func entry(environ []string, name string) (string, bool) {
	for _, pair := range environ {
		if have, value, _ := strings.Cut(pair, "="); have == name {
			return value, true
		}
	}
	return "", false
}
