package agentapi

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

// maxBody bounds every request, bytes. The largest are pipelines of 500 steps
// and annotations, whose 1 MiB may be escaped.
const maxBody = 16 << 20

// kinds is a set of tokens.
type kinds int

const (
	registration kinds = 1 << iota // of `buildkite-agent start`
	session                        // of a registered worker
	jobToken                       // of one job
)

func (k kinds) String() string {
	var names []string
	for kind, name := range map[kinds]string{registration: "the registration token", session: "a session token", jobToken: "a job token"} {
		if k&kind != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// A caller is who a token belongs to: a worker with a session token, a job
// with a job token.
type caller struct {
	kind  kinds
	agent engine.Agent
	job   engine.Job
}

// agentID is the worker the caller is or runs on.
func (c *caller) agentID() string {
	if c.kind == jobToken {
		return c.job.AgentID
	}
	return c.agent.ID
}

// identify looks a request's token up and checks that it may make this call:
// a job's only for itself and its build.
func (a *API) identify(r *http.Request, allowed kinds) (caller, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Token ")
	if !ok || token == "" {
		return caller{}, engine.Refuse(engine.Unauthorized, "the Authorization header has no token, want \"Token …\" with %s", allowed)
	}
	var who caller
	if a.isRegistration(token) {
		who.kind = registration
	} else if agent, ok := a.engine.AgentByToken(token); ok {
		who.kind, who.agent = session, agent
	} else if job, ok := a.engine.JobByToken(token); ok {
		who.kind, who.job = jobToken, job
	} else {
		return caller{}, engine.Refuse(engine.Unauthorized, "this token is not known or no longer, want %s", allowed)
	}
	if who.kind&allowed == 0 {
		return caller{}, engine.Refuse(engine.Unauthorized, "got %s, want %s", who.kind, allowed)
	}
	if id := r.PathValue("job"); id != "" && id != who.job.ID {
		return caller{}, engine.Refuse(http.StatusForbidden, "the token belongs to another job")
	}
	if id := r.PathValue("build"); id != "" && id != who.job.BuildID {
		return caller{}, engine.Refuse(http.StatusForbidden, "the token belongs to a job of another build")
	}
	return who, nil
}

// isRegistration compares in constant time.
func (a *API) isRegistration(token string) bool {
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(a.opts.RegistrationToken))
	return a.opts.RegistrationToken != "" && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// read returns the body.
func (c *call) read() ([]byte, error) {
	data, err := io.ReadAll(c.Body)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, engine.Refuse(http.StatusRequestEntityTooLarge, "got a body of more than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, engine.Refuse(engine.BadRequest, "reading the body: %v", err)
	}
	return data, nil
}

// decode reads the body into v; an empty body leaves v as it is. Members it
// does not know are ignored, since agents are newer than this.
func (c *call) decode(v any) error {
	data, err := c.read()
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return engine.Refuse(engine.BadRequest, "the body is not the JSON this call takes: %v", err)
	}
	return nil
}

// checkTime refuses what is not a time. The engine goes by its own clock, so an
// agent's time may be missing.
func checkTime(name, s string) error {
	if _, err := time.Parse(time.RFC3339Nano, s); err != nil && s != "" {
		return unusable("%s: got %q, want a time as in RFC 3339", name, s)
	}
	return nil
}
