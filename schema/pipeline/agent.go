package pipeline

import (
	"bytes"
	"strings"

	agentparser "github.com/buildkite/go-pipeline"
	"github.com/buildkite/go-pipeline/warning"
)

// agent parses the stream as the agent does. What the format has said already
// is not said again.
func (c *checker) agent(stream []byte) {
	if len(c.findings) > 0 && c.formatFaults() {
		return
	}
	i := 0
	for p, err := range agentparser.ParseAll(bytes.NewReader(stream)) {
		path := ""
		if i < len(c.documents) {
			path = strings.TrimSuffix(c.documents[i].path, ": ")
		}
		i++
		w := warning.As(err)
		switch {
		case w != nil:
			c.add("KB802", Finding{Path: path}, "the agent's parser warns: %s", oneLine(w.Error()))
		case err != nil:
			c.add("KB801", Finding{Path: path}, "the agent's parser refuses it: %s", oneLine(err.Error()))
			return // nothing sensible comes behind it
		case p != nil && len(p.Steps) == 0:
			c.add("KB001", Finding{Path: path}, "the document has no steps")
		}
	}
}

// formatFaults tells whether the format has found something that the agent's
// parser would stumble over as well.
func (c *checker) formatFaults() bool {
	for _, f := range c.findings {
		if f.Rule[:3] == "KB0" && f.Severity >= Warning {
			return true
		}
	}
	return false
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
