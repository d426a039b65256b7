package harness

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// The files of a task in the usual form.
const (
	referenceFile = "reference.py"
	taskFile      = "task.py"
	utilsFile     = "utils.py"
)

// Choose says which harness is to judge a payload, without looking further than
// its text: the task's own wish, else isolated where the main file is a known
// one and the reference defines both functions; never unasked for C++. The
// report's Why says why it is the legacy one.
//
// Error: the task wishes for what this harness cannot do.
func Choose(p *schema.Payload) (*schema.HarnessReport, error) {
	main, _ := p.Sources.Get(p.Main)
	variant, known := plan.KnownHarness(main)
	return choose(p, variant.Name, known)
}

// choose does so for a main file of that variant.
func choose(p *schema.Payload, variant string, known bool) (*schema.HarnessReport, error) {
	h := &schema.HarnessReport{Name: schema.HarnessLegacy, Variant: variant}
	if p.Harness == schema.HarnessLegacy {
		h.Why = "the task asks for it"
		return h, nil
	}
	why := cmp.Or(legacyWhy(variant), cannot(p))
	if p.Harness == schema.HarnessIsolated {
		if why != "" {
			return nil, errors.New("the task asks for the isolated harness: " + why)
		}
		h.Name = schema.HarnessIsolated
		return h, nil
	}
	switch {
	case p.Lang == schema.LangCUDA:
		why = "a task in C++ gets the isolated harness only when it says harness: isolated"
	case !known:
		why = cmp.Or(why, "unknown main file")
	case p.Mode == schema.ModeProfile:
		why = cmp.Or(why, "a profile is told as the task's own main file does it, and carries no score")
	}
	if h.Why = why; why == "" {
		h.Name = schema.HarnessIsolated
	}
	return h, nil
}

// cannot says why the isolated harness cannot judge a payload, "" when it can.
func cannot(p *schema.Payload) string {
	switch {
	case p.MultiGPU:
		return "its submissions run on several GPUs at once"
	case p.Lang == schema.LangCUDA && p.Mode == schema.ModeProfile:
		return "a profile of C++ is told by the task's own harness only"
	}
	wanted := []string{plan.SubmissionFile, referenceFile}
	if p.Lang == schema.LangCUDA {
		wanted = []string{plan.SubmissionCUDA, plan.TaskHeader, plan.ReferenceCUDA}
	}
	files := slices.Concat(p.Sources, p.Headers)
	for _, name := range wanted {
		if _, ok := files.Get(name); !ok {
			return "there is no " + name
		}
	}
	if p.Lang == schema.LangCUDA {
		return "" // the compiler says what they do not define
	}
	reference, _ := p.Sources.Get(referenceFile)
	for _, name := range []string{"generate_input", "check_implementation"} {
		if !defines(reference, name) {
			return referenceFile + " defines no " + name
		}
	}
	return ""
}

// defines reports whether a line of Python's source defines the name.
func defines(source, name string) bool {
	starts := []string{"def " + name + "(", "def " + name + " (", name + " =", name + "=", name + ":"}
	for line := range strings.Lines(source) {
		if slices.ContainsFunc(starts, func(start string) bool { return strings.HasPrefix(line, start) }) {
			return true
		}
	}
	return false
}

// imports lists the modules worth importing before a submission is known, as far
// as the task's own files import them.
func imports(p *schema.Payload) []string {
	found := []string{}
	for _, module := range []string{"torch", "triton", "numpy"} {
		for _, name := range []string{taskFile, utilsFile, referenceFile} {
			if text, ok := p.Sources.Get(name); ok && importsModule(text, module) {
				found = append(found, module)
				break
			}
		}
	}
	return found
}

func importsModule(source, module string) bool {
	for line := range strings.Lines(source) {
		words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' || r == '\n' || r == '\r' })
		if len(words) < 2 || words[0] != "import" && words[0] != "from" {
			continue
		}
		for _, word := range words[1:] {
			if word == module || strings.HasPrefix(word, module+".") {
				return true
			}
			if words[0] == "from" {
				break
			}
		}
	}
	return false
}
