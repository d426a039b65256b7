package steps

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Limits of automatic retries, per rule.
const (
	defaultRetryLimit = 2
	maxRetryLimit     = 10
)

func retry(raw json.RawMessage) (Retry, error) {
	fields, err := object(raw)
	if err != nil {
		return Retry{}, err
	}
	var out Retry
	for name, value := range fields {
		switch name {
		case "automatic":
			out.Automatic, err = automatic(value)
		case "manual":
			err = manual(&out, value)
		default:
			return Retry{}, unknownProperty(name, "retry")
		}
		if err != nil {
			return Retry{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// automatic reads true, one rule or a list of rules.
func automatic(raw json.RawMessage) ([]RetryRule, error) {
	if on, err := truth(raw); err == nil {
		if !on {
			return nil, nil
		}
		return []RetryRule{{AnyStatus: true, Limit: defaultRetryLimit}}, nil
	}
	if jsonType(raw) == "an object" {
		rule, err := retryRule(raw)
		return []RetryRule{rule}, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("got %s, want true, false, a rule or a list of rules", jsonType(raw))
	}
	out := make([]RetryRule, 0, len(list))
	for i, item := range list {
		rule, err := retryRule(item)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		out = append(out, rule)
	}
	return out, nil
}

func retryRule(raw json.RawMessage) (RetryRule, error) {
	fields, err := object(raw)
	if err != nil {
		return RetryRule{}, err
	}
	rule := RetryRule{Limit: defaultRetryLimit}
	for name, value := range fields {
		switch name {
		case "exit_status":
			rule.AnyStatus, rule.Statuses, err = exitStatuses(value)
		case "signal":
			rule.Signals, err = words(value)
			for i, s := range rule.Signals {
				rule.Signals[i] = trimSignal(s)
			}
		case "signal_reason":
			rule.SignalReasons, err = words(value)
		case "limit":
			rule.Limit, err = wholeNumber(value, 0, maxRetryLimit)
		default:
			return RetryRule{}, unknownProperty(name, "retry rule")
		}
		if err != nil {
			return RetryRule{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	if !rule.AnyStatus && rule.Statuses == nil && rule.Signals == nil && rule.SignalReasons == nil {
		rule.AnyStatus = true // {limit: n} alone
	}
	return rule, nil
}

func manual(out *Retry, raw json.RawMessage) error {
	if allowed, err := truth(raw); err == nil {
		out.ManualDenied = !allowed
		return nil
	}
	fields, err := object(raw)
	if err != nil {
		return err
	}
	for name, value := range fields {
		switch name {
		case "allowed":
			allowed, err := truth(value)
			if err != nil {
				return fmt.Errorf("allowed: %w", err)
			}
			out.ManualDenied = !allowed
		case "permit_on_passed":
			if out.PermitOnPassed, err = truth(value); err != nil {
				return fmt.Errorf("permit_on_passed: %w", err)
			}
		case "reason":
			if out.ManualReason, err = text(value); err != nil {
				return fmt.Errorf("reason: %w", err)
			}
		default:
			return unknownProperty(name, "manual retry")
		}
	}
	return nil
}

// Retry says who may retry a job of the step.
type Retry struct {
	Automatic []RetryRule // the first that matches decides

	ManualDenied   bool
	ManualReason   string
	PermitOnPassed bool
}

// A RetryRule matches ended jobs. Empty lists match everything but success.
type RetryRule struct {
	AnyStatus     bool // exit_status "*": 1 to 255, not -1
	Statuses      []int
	Signals       []string // without "SIG", upper case; "*" is any
	SignalReasons []string // "none" is no reason, "*" any
	Limit         int      // 0 to 10
}

// Matches reports whether the rule covers a job that ended like this. signal
// may carry "SIG" or not.
func (r RetryRule) Matches(status int, signal, signalReason string) bool {
	switch {
	case r.AnyStatus:
		if status < 1 || status > 255 {
			return false
		}
	case len(r.Statuses) > 0:
		found := false
		for _, s := range r.Statuses {
			found = found || s == status
		}
		if !found {
			return false
		}
	}
	return status != 0 &&
		matchWord(r.Signals, trimSignal(signal), "NONE") &&
		matchWord(r.SignalReasons, signalReason, "none")
}

// matchWord reports whether got is among want, of which none is stated when it
// is empty. "*" stands for any word, absent for there being none.
func matchWord(want []string, got, absent string) bool {
	if len(want) == 0 {
		return true
	}
	for _, w := range want {
		if got != "" && (w == got || w == "*") || got == "" && w == absent {
			return true
		}
	}
	return false
}

func trimSignal(s string) string { return strings.TrimPrefix(strings.ToUpper(s), "SIG") }
