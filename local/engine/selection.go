package engine

import (
	"slices"

	"github.com/gpu-mode/kbgen/local/steps"
)

// names reports whether a selection names the step.
func names(selected []string, s *steps.Step) bool {
	return s.Key != "" && slices.Contains(selected, s.Key) || s.Label != "" && slices.Contains(selected, s.Label)
}

// selects reports whether the build's selection leaves a step in. Steps of the
// pipeline's own configuration stay: they upload the others. So do waits, and
// groups for what lies in them.
func (in *insertion) selects(n *node) bool {
	selected := in.build.Select
	if len(selected) == 0 || in.uploader == nil || n.def.Kind == steps.Wait || n.def.Kind == steps.Group {
		return true
	}
	return names(selected, n.def) || n.parent != nil && names(selected, n.parent.def)
}

// acceptsSelection refuses a first upload of which nothing is selected.
func (in *insertion) acceptsSelection(doc *steps.Document) error {
	if in.uploader == nil || len(in.build.Select) == 0 || len(in.build.uploads) > 0 {
		return nil
	}
	have := []string{}
	for _, s := range doc.All() {
		if names(in.build.Select, s) {
			return nil
		}
		if s.Key != "" {
			have = append(have, s.Key)
		}
	}
	return Refuse(Invalid, "no step has the key or label %q, have the keys %q", in.build.Select, have)
}
