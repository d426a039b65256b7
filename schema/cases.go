package schema

import "strings"

// A Case is one test case or benchmark: its parameters in the order that
// decides how it is printed.
type Case []Param

// A Param is one named value of a case.
type Param struct {
	Name  string
	Value Value
}

// Text returns the case as testers read it, "size: 128; seed: 5", without a
// line end. Values are formatted by Python's str.
//
// The order is the payload's. Kernelbot keeps tasks as JSONB, which re-orders
// members, so the text of one case may differ between two payloads of a task:
// it is no key.
func (c Case) Text() string {
	parts := make([]string, len(c))
	for i, p := range c {
		parts[i] = p.Name + ": " + p.Value.Text()
	}
	return strings.Join(parts, "; ")
}

// CasesText returns the content of a cases file: one line per case, each with
// its line end; "" for no cases. With last, only the last case is written.
func CasesText(cases []Case, last bool) string {
	if last && len(cases) > 1 {
		cases = cases[len(cases)-1:]
	}
	var b strings.Builder
	for _, c := range cases {
		b.WriteString(c.Text() + "\n")
	}
	return b.String()
}

func caseNode(c Case) node {
	n := node{kind: kindObject}
	for _, p := range c {
		n.members = append(n.members, member{p.Name, p.Value.node()})
	}
	return n
}

func casesNode(cases []Case) node {
	n := node{kind: kindList}
	for _, c := range cases {
		n.list = append(n.list, caseNode(c))
	}
	return n
}
