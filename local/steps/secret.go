package steps

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A Secret is one that a step's agent fetches from the store before the job's
// hooks. The agent reads this form back.
type Secret struct {
	Key      string `json:"key"`                            // in the store
	Variable string `json:"environment_variable,omitempty"` // that gets the value; empty: none
}

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

// secrets reads the three forms: names, which are variables too; variables with
// the names of their secrets; and what the agent makes of both.
func secrets(raw json.RawMessage) ([]Secret, error) {
	var all []Secret
	switch kind := jsonType(raw); kind {
	case "an object":
		names, err := stringMap(raw)
		if err != nil {
			return nil, err
		}
		for _, variable := range slices.Sorted(maps.Keys(names)) {
			all = append(all, Secret{names[variable], variable})
		}
	case "a list":
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, err
		}
		for i, item := range items {
			var s Secret
			switch jsonType(item) {
			case "a string":
				s.Key, _ = text(item)
				s.Variable = s.Key
			case "an object":
				if err := json.Unmarshal(item, &s); err != nil {
					return nil, fmt.Errorf("[%d]: got no key and environment_variable that are strings", i)
				}
			default:
				return nil, fmt.Errorf("[%d]: got %s, want a name", i, jsonType(item))
			}
			all = append(all, s)
		}
	default:
		return nil, fmt.Errorf("got %s, want a list of names or an object", kind)
	}
	for _, s := range all {
		if err := CheckSecretKey(s.Key); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// inherit gives a document's secrets to its command steps: a step's own beat those
// for the same variable.
func (d *Document) inherit(shared []Secret) error {
	if len(shared) == 0 {
		return nil
	}
	var err error
	d.Walk(func(s *Step) {
		if s.Kind != Command || err != nil {
			return
		}
		all := slices.Clone(s.Secrets)
		for _, from := range shared {
			if !slices.ContainsFunc(s.Secrets, func(own Secret) bool { return own.Variable == from.Variable }) {
				all = append(all, from)
			}
		}
		var fields map[string]json.RawMessage
		if fields, err = object(s.JSON); err != nil {
			return
		}
		s.Secrets = all
		if fields["secrets"], err = json.Marshal(all); err == nil {
			s.JSON, err = json.Marshal(fields)
		}
	})
	return err
}
