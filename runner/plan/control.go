package plan

import (
	_ "embed"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

//go:embed standin.py
var standIn string

// ControlLimit bounds a control run, in wall time, whatever the phase's own
// limit is.
const ControlLimit = 2 * time.Minute

// The files that the stand-in leaves in the control's Temp, by how far it got.
const (
	ControlCalled   = "kbrun-called"   // the harness called it
	ControlSolution = "kbrun-solution" // it has the task's own solution to call
	ControlAnswered = "kbrun-answered" // it returned
)

// Control plans a phase's harness once more, with the task's own solution in
// place of the submission and the phase's first case: ref_kernel of
// reference.py where that has one, else a submission that does nothing. Nothing
// of the submission is in it, so that what fails there is the task's doing or
// the machine's.
//
// A secret seed is replaced by 1: what a control run says may be told. Mode
// profile becomes mode test, without the profiler. It returns nil for what has
// no control: lang cu, a payload without submission.py, a phase without cases.
func Control(p *schema.Payload, m Machine, ph *Phase) *Phase {
	if _, there := p.Sources.Get(SubmissionFile); !there || p.Lang != schema.LangPython || p.Main == SubmissionFile {
		return nil
	}
	b := builder{p: p, m: m, only: -1, ph: Phase{Name: "control", Mode: ph.Mode, Variant: ph.Variant}}
	cases := ph.Cases
	if ph.Mode == schema.ModeProfile {
		b.ph.Mode = schema.ModeTest
		if cases = schema.CasesText(p.Tests, false); cases == "" {
			b.ph.Mode, cases = schema.ModeBenchmark, ph.Cases
		}
	}
	first, _, _ := strings.Cut(cases, "\n")
	if strings.TrimSpace(first) == "" {
		return nil
	}
	b.place()
	b.ph.Files = slices.Clone(p.Sources)
	for i := range b.ph.Files {
		if b.ph.Files[i].Name == SubmissionFile {
			b.ph.Files[i].Text = standIn
		}
	}
	b.ph.Cases = first + "\n"
	c := b.command(ControlLimit, nil, "python3", p.Main, b.ph.Mode, b.ph.CasesFile())
	b.ph.Test = c
	c.withReport()
	c.Harness = true
	if p.Seed != nil {
		one := int64(1)
		c.Seed = &one
	}
	return &b.ph
}

// ControlFile is where a mark of the stand-in lies, one of the names above.
func (d Directories) ControlFile(name string) string { return filepath.Join(d.Temp, name) }
