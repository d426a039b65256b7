package agentapi

import (
	"github.com/google/uuid"

	"github.com/gpu-mode/kbgen/local/engine"
)

// A secretReply holds one secret of the store.
type secretReply struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	UUID  string `json:"uuid"`
}

// secret answers a running job, for its step's secrets and for buildkite-agent
// secret get. Buildkite's policies, which say what jobs may read a secret, are not
// imitated: here every job may read every one.
func (a *API) secret(c *call) (any, error) {
	key := c.URL.Query().Get("key")
	value, ok := a.opts.Secrets[key]
	if !ok {
		return nil, engine.Refuse(engine.NotFound, "there is no secret %.80q", key)
	}
	return secretReply{key, value, uuid.NewSHA1(uuid.NameSpaceOID, []byte(key)).String()}, nil
}
