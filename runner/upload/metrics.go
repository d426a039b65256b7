package upload

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
)

// Metrics are what one upload did, for a collector of text files.
type Metrics struct {
	Pipeline            string
	Rendering, Handover time.Duration
	Documents           int
	Selected, Skipped   int // steps
}

// text is the metrics in the form of OpenMetrics, which Prometheus reads too.
func (m *Metrics) text() string {
	var b strings.Builder
	gauge := func(name, unit, help string) {
		fmt.Fprintf(&b, "# TYPE %s gauge\n", name)
		if unit != "" {
			fmt.Fprintf(&b, "# UNIT %s %s\n", name, unit)
		}
		fmt.Fprintf(&b, "# HELP %s %s\n", name, help)
	}
	gauge("kbgen_steps", "", "Steps of the last upload.")
	fmt.Fprintf(&b, "kbgen_steps{pipeline=%q,state=\"selected\"} %d\n", m.Pipeline, m.Selected)
	fmt.Fprintf(&b, "kbgen_steps{pipeline=%q,state=\"skipped\"} %d\n", m.Pipeline, m.Skipped)
	gauge("kbgen_documents", "", "Documents of the last upload; none where an earlier try had uploaded all.")
	fmt.Fprintf(&b, "kbgen_documents{pipeline=%q} %d\n", m.Pipeline, m.Documents)
	gauge("kbgen_render_seconds", "seconds", "Rendering and checking.")
	fmt.Fprintf(&b, "kbgen_render_seconds{pipeline=%q} %.6f\n", m.Pipeline, m.Rendering.Seconds())
	gauge("kbgen_upload_seconds", "seconds", "The agent, until Buildkite had the steps.")
	fmt.Fprintf(&b, "kbgen_upload_seconds{pipeline=%q} %.6f\n", m.Pipeline, m.Handover.Seconds())
	b.WriteString("# EOF\n")
	return b.String()
}

// Write puts the metrics in place at once: a collector may read at any time.
func (m *Metrics) Write(path string) error {
	const mode = 0o644 // the collector is another user
	return renameio.WriteFile(path, []byte(m.text()), mode, renameio.WithTempDir(filepath.Dir(path)), renameio.IgnoreUmask())
}
