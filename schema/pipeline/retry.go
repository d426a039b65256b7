package pipeline

import (
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// A matcher is what one retry rule takes.
type matcher struct {
	hasStatus bool // without one Buildkite takes "*"
	anyStatus bool // "*": 1 to 255
	statuses  []int
	signals   []string
	anySignal bool // given as "*", or not given
	reasons   []string
	anyReason bool
	known     bool // nothing in it is replaced at upload
}

// retry checks the rules of a step for automatic retries.
func (c *checker) retry(s *step) {
	automatic := child(child(s.node, "retry"), "automatic")
	if automatic == nil || automatic.Kind == yaml.ScalarNode {
		return
	}
	var earlier []matcher
	for i, n := range items(automatic) {
		path := s.path + ".retry.automatic"
		if automatic.Kind == yaml.SequenceNode {
			path = index(path, i)
		}
		if n.Kind != yaml.MappingNode {
			continue
		}
		m := readMatcher(n)
		if !m.known {
			continue
		}
		if why := m.never(); why != "" {
			c.report("KB501", n, path, "never matches: %s", why)
			continue
		}
		for j, e := range earlier {
			if e.covers(m) {
				c.report("KB502", n, path, "never reached: rule %d takes all that it would match", j+1)
				break
			}
		}
		earlier = append(earlier, m)
	}
}

func readMatcher(n *yaml.Node) matcher {
	m := matcher{known: true}
	for _, status := range items(child(n, "exit_status")) {
		m.hasStatus = true
		switch v, ok := intValue(status); {
		case status.Value == "*":
			m.anyStatus = true
		case ok:
			m.statuses = append(m.statuses, v)
		default:
			m.known = false
		}
	}
	words := func(key string) (list []string, any bool) {
		for _, w := range items(child(n, key)) {
			if isVariable(w.Value) {
				m.known = false
			}
			any = any || w.Value == "*"
			list = append(list, strings.TrimPrefix(strings.ToLower(w.Value), "sig"))
		}
		return list, any || len(list) == 0
	}
	m.signals, m.anySignal = words("signal")
	m.reasons, m.anyReason = words("signal_reason")
	return m
}

// signalled are the reasons of jobs that end with exit status -1.
var signalled = []string{"agent_refused", "agent_stop", "process_run_error", "signature_rejected", "agent_incompatible", "stack_error"}

// never says why no job can match a rule, "" if one can.
func (m matcher) never() string {
	if m.hasStatus && !m.anyStatus && !slices.ContainsFunc(m.statuses, func(s int) bool { return s != 0 }) {
		return "a job with exit status 0 has passed"
	}
	if !m.hasStatus || slices.Contains(m.statuses, -1) || m.anyReason {
		return ""
	}
	for _, r := range m.reasons {
		if !slices.Contains(signalled, r) {
			return ""
		}
	}
	status := "\"*\" means 1 to 255"
	if !m.anyStatus {
		status = "exit_status is " + numbers(m.statuses)
	}
	return "a job that ends for " + strings.Join(m.reasons, " or ") + " has exit status -1, and " + status
}

func numbers(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ", ")
}

// covers reports whether e takes every job that m would.
func (e matcher) covers(m matcher) bool {
	if !e.anySignal && (m.anySignal || !subset(m.signals, e.signals)) {
		return false
	}
	if !e.anyReason && (m.anyReason || !subset(m.reasons, e.reasons)) {
		return false
	}
	if !m.hasStatus {
		return !e.hasStatus
	}
	all := e.anyStatus || !e.hasStatus
	if m.anyStatus && !all {
		return false
	}
	return !slices.ContainsFunc(m.statuses, func(s int) bool {
		return !slices.Contains(e.statuses, s) && !(all && s > 0)
	})
}

func subset(inner, outer []string) bool {
	return !slices.ContainsFunc(inner, func(s string) bool { return !slices.Contains(outer, s) })
}

// softFail looks for exit status 0, which is no failure.
func (c *checker) softFail(s *step) {
	list := child(s.node, "soft_fail")
	if list == nil || list.Kind != yaml.SequenceNode {
		return
	}
	for i, rule := range list.Content {
		for _, status := range items(child(rule, "exit_status")) {
			if status.Value == "0" {
				c.report("KB503", status, index(s.path+".soft_fail", i)+".exit_status", "got 0: such a job has passed")
			}
		}
	}
}
