package steps

import (
	"encoding/json"
	"fmt"
)

// SoftFail says which exit statuses do not fail a build.
type SoftFail struct {
	All      bool
	Statuses []int
}

// Allows reports whether a job that ended with status fails softly.
func (s SoftFail) Allows(status int) bool {
	if s.All {
		return status != 0
	}
	for _, want := range s.Statuses {
		if want == status {
			return true
		}
	}
	return false
}

func softFail(raw json.RawMessage) (SoftFail, error) {
	if all, err := truth(raw); err == nil {
		return SoftFail{All: all}, nil
	}
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return SoftFail{}, fmt.Errorf("got %s, want true, false or a list of {exit_status}", jsonType(raw))
	}
	var out SoftFail
	for i, item := range list {
		for name, value := range item {
			if name != "exit_status" {
				return SoftFail{}, fmt.Errorf("[%d]: %w", i, unknownProperty(name, "soft_fail rule"))
			}
			any, statuses, err := exitStatuses(value)
			if err != nil {
				return SoftFail{}, fmt.Errorf("[%d]: exit_status: %w", i, err)
			}
			out.All = out.All || any
			out.Statuses = append(out.Statuses, statuses...)
		}
	}
	return out, nil
}

// leastStatus is the least exit status that a job may end with: the agent on
// Kubernetes says -7 for a container that stopped answering and -10 for one that
// never did. -1 is a job whose status nobody knows.
const leastStatus = -10

// exitStatuses reads "*", a number or a list of numbers.
func exitStatuses(raw json.RawMessage) (any bool, statuses []int, err error) {
	if word, err := text(raw); err == nil {
		if word == "*" {
			return true, nil, nil
		}
		raw = json.RawMessage(word) // numbers in quotes are taken
	}
	if jsonType(raw) == "a list" {
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return false, nil, err
		}
		for _, item := range list {
			n, err := wholeNumber(item, leastStatus, 255)
			if err != nil {
				return false, nil, err
			}
			statuses = append(statuses, n)
		}
		return false, statuses, nil
	}
	n, err := wholeNumber(raw, leastStatus, 255)
	return false, []int{n}, err
}
