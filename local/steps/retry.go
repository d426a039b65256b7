package steps

import (
	"encoding/json"
	"slices"
	"strings"
)

// defaultRetryLimit is the limit of an automatic retry rule without one.
const defaultRetryLimit = 2

// Retry says who may retry a job of the step.
type Retry struct {
	Automatic []RetryRule // the first that matches decides

	ManualDenied   bool
	ManualReason   string
	PermitOnPassed bool
}

// UnmarshalJSON reads {automatic, manual}, each of which may be a boolean.
func (r *Retry) UnmarshalJSON(raw []byte) error {
	var fields struct{ Automatic, Manual json.RawMessage }
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	var on flag
	switch kind := jsonType(fields.Automatic); {
	case kind == "nothing" || kind == "null":
	case json.Unmarshal(fields.Automatic, &on) == nil:
		if on {
			r.Automatic = []RetryRule{{AnyStatus: true, Limit: defaultRetryLimit}}
		}
	default:
		if kind == "an object" {
			fields.Automatic = slices.Concat([]byte("["), fields.Automatic, []byte("]"))
		}
		if err := json.Unmarshal(fields.Automatic, &r.Automatic); err != nil {
			return err
		}
	}
	if kind := jsonType(fields.Manual); kind == "nothing" || kind == "null" {
		return nil
	}
	if json.Unmarshal(fields.Manual, &on) == nil {
		r.ManualDenied = bool(!on)
		return nil
	}
	manual := struct {
		Allowed        flag
		PermitOnPassed flag `json:"permit_on_passed"`
		Reason         scalar
	}{Allowed: true}
	err := json.Unmarshal(fields.Manual, &manual)
	r.ManualDenied, r.PermitOnPassed, r.ManualReason = bool(!manual.Allowed), bool(manual.PermitOnPassed), string(manual.Reason)
	return err
}

// A RetryRule matches ended jobs. Empty lists match everything but success.
type RetryRule struct {
	AnyStatus     bool // exit_status "*": 1 to 255, not -1
	Statuses      []int
	Signals       []string // without "SIG", upper case; "*" is any
	SignalReasons []string // "none" is no reason, "*" any
	Limit         int      // 0 to 10
}

// UnmarshalJSON reads one rule; {limit: n} alone is about any status.
func (r *RetryRule) UnmarshalJSON(raw []byte) error {
	rule := struct {
		ExitStatus    exitStatus `json:"exit_status"`
		Signal        words
		SignalReasons words `json:"signal_reason"`
		Limit         number
	}{Limit: defaultRetryLimit}
	if err := json.Unmarshal(raw, &rule); err != nil {
		return err
	}
	for i, s := range rule.Signal {
		rule.Signal[i] = trimSignal(s)
	}
	*r = RetryRule{rule.ExitStatus.any, rule.ExitStatus.list, rule.Signal, rule.SignalReasons, int(rule.Limit)}
	if r.Statuses == nil && r.Signals == nil && r.SignalReasons == nil {
		r.AnyStatus = true
	}
	return nil
}

// Matches reports whether the rule covers a job that ended like this. signal
// may carry "SIG" or not.
func (r RetryRule) Matches(status int, signal, signalReason string) bool {
	switch {
	case r.AnyStatus:
		if status < 1 || status > 255 {
			return false
		}
	case len(r.Statuses) > 0 && !slices.Contains(r.Statuses, status):
		return false
	}
	return status != 0 &&
		matchWord(r.Signals, trimSignal(signal), "NONE") &&
		matchWord(r.SignalReasons, signalReason, "none")
}

// matchWord reports whether got is among want, of which none is stated when it
// is empty. "*" stands for any word, absent for there being none.
func matchWord(want []string, got, absent string) bool {
	if got == "" {
		return len(want) == 0 || slices.Contains(want, absent)
	}
	return len(want) == 0 || slices.Contains(want, got) || slices.Contains(want, "*")
}

func trimSignal(s string) string { return strings.TrimPrefix(strings.ToUpper(s), "SIG") }

// SoftFail says which exit statuses do not fail a build.
type SoftFail struct {
	All      bool
	Statuses []int
}

// Allows reports whether a job that ended with status fails softly.
func (s SoftFail) Allows(status int) bool {
	return s.All && status != 0 || !s.All && slices.Contains(s.Statuses, status)
}

// UnmarshalJSON reads true, false or a list of {exit_status}.
func (s *SoftFail) UnmarshalJSON(raw []byte) error {
	if jsonType(raw) != "a list" {
		return json.Unmarshal(raw, (*flag)(&s.All))
	}
	var list []struct {
		ExitStatus exitStatus `json:"exit_status"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, rule := range list {
		s.All = s.All || rule.ExitStatus.any
		s.Statuses = append(s.Statuses, rule.ExitStatus.list...)
	}
	return nil
}

// An exitStatus is "*", a number or a list of numbers.
type exitStatus struct {
	any  bool
	list []int
}

func (e *exitStatus) UnmarshalJSON(raw []byte) error {
	var list words
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, item := range list {
		if item == "*" {
			e.any = true
			continue
		}
		n, err := scalar(item).number()
		if err != nil {
			return err
		}
		e.list = append(e.list, int(n))
	}
	return nil
}
