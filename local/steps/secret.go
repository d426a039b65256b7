package steps

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	agentparser "github.com/buildkite/go-pipeline"
)

var secretKey = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,254}$`)

// CheckSecretKey refuses what cannot be the key of a secret.
//
// Source: buildkite.com/docs/pipelines/security/secrets/buildkite-secrets.
func CheckSecretKey(key string) error {
	upper := strings.ToUpper(key)
	if !secretKey.MatchString(key) || strings.HasPrefix(upper, "BUILDKITE") || strings.HasPrefix(upper, "BK") {
		return fmt.Errorf("got %.80q, want letters, digits and _, a letter first and neither BUILDKITE nor BK, at most 255", key)
	}
	return nil
}

// secrets are those that a step's agent fetches before the job's hooks, in any
// form that the agent reads.
type secrets struct{ agentparser.Secrets }

func (s *secrets) UnmarshalJSON(raw []byte) error {
	if err := json.Unmarshal(raw, &s.Secrets); err != nil {
		return err
	}
	for _, one := range s.Secrets {
		if err := CheckSecretKey(one.Key); err != nil {
			return err
		}
	}
	return nil
}

// inherit gives a document's secrets to its command steps, in the JSON that the
// agent reads: a step's own beat those for the same variable.
func (d *Document) inherit(shared secrets) error {
	if len(shared.Secrets) == 0 {
		return nil
	}
	for _, s := range d.All() {
		if s.Kind != Command {
			continue
		}
		var fields map[string]json.RawMessage
		err := json.Unmarshal(s.JSON, &fields)
		if err != nil {
			return err
		}
		if fields["secrets"], err = json.Marshal(shared.MergeWith(s.secrets.Secrets)); err != nil {
			return err
		}
		if s.JSON, err = json.Marshal(fields); err != nil {
			return err
		}
	}
	return nil
}
