package harness

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// maxReported bounds one text of a report, in characters.
const maxReported = 1000

// A report is the lines that a tester would have written.
type report struct{ b strings.Builder }

func (r *report) put(key, value string) { fmt.Fprintf(&r.b, "%s: %s\n", key, value) }

// putText writes foreign text on one line.
func (r *report) putText(key, value string) { r.put(key, text.Line(value, maxReported)) }

// figures writes Kernelbot's figures as Python prints them.
func (r *report) figures(prefix string, s stats, ends bool) {
	r.put(prefix+"runs", strconv.Itoa(s.runs))
	r.put(prefix+"mean", schema.FloatRepr(s.mean))
	r.put(prefix+"std", schema.FloatRepr(s.std))
	r.put(prefix+"err", schema.FloatRepr(s.err))
	if ends {
		r.put(prefix+"best", schema.FloatRepr(s.best))
		r.put(prefix+"worst", schema.FloatRepr(s.worst))
	}
}
