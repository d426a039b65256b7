package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/generator"
)

// metrics are what one upload did, for a collector of text files.
type metrics struct {
	pipeline            string
	rendering, handover time.Duration
	documents           int
	selected, skipped   int
}

// count adds the steps of the pipeline that is asked for.
func (m *metrics) count(c *uploadCmd, env *cli.Env) error {
	p, err := c.find()
	if err != nil {
		return err
	}
	r, err := c.request(p, env)
	if err != nil {
		return err
	}
	plan, err := generator.Plan(p, r)
	for _, s := range plan {
		if s.Skip == "" {
			m.selected++
		} else {
			m.skipped++
		}
	}
	m.pipeline = p.Name
	return err
}

// text is the metrics in the form of OpenMetrics, which Prometheus reads too.
func (m *metrics) text() string {
	var b strings.Builder
	gauge := func(name, unit, help string) {
		fmt.Fprintf(&b, "# TYPE %s gauge\n", name)
		if unit != "" {
			fmt.Fprintf(&b, "# UNIT %s %s\n", name, unit)
		}
		fmt.Fprintf(&b, "# HELP %s %s\n", name, help)
	}
	gauge("kbgen_steps", "", "Steps of the last upload.")
	fmt.Fprintf(&b, "kbgen_steps{pipeline=%q,state=\"selected\"} %d\n", m.pipeline, m.selected)
	fmt.Fprintf(&b, "kbgen_steps{pipeline=%q,state=\"skipped\"} %d\n", m.pipeline, m.skipped)
	gauge("kbgen_documents", "", "Documents of the last upload; none where an earlier try had uploaded all.")
	fmt.Fprintf(&b, "kbgen_documents{pipeline=%q} %d\n", m.pipeline, m.documents)
	gauge("kbgen_render_seconds", "seconds", "Rendering and checking.")
	fmt.Fprintf(&b, "kbgen_render_seconds{pipeline=%q} %.6f\n", m.pipeline, m.rendering.Seconds())
	gauge("kbgen_upload_seconds", "seconds", "The agent, until Buildkite had the steps.")
	fmt.Fprintf(&b, "kbgen_upload_seconds{pipeline=%q} %.6f\n", m.pipeline, m.handover.Seconds())
	b.WriteString("# EOF\n")
	return b.String()
}

// write puts the metrics in place at once: a collector may read at any time.
func (m *metrics) write(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".kbgen-metrics-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(m.text())
	if err == nil {
		err = f.Chmod(0o644) // the collector is another user
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
