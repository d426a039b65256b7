package task

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/near"
	"github.com/gpu-mode/kbgen/schema/text"
)

// keys of the document and of its parts, as Kernelbot takes them.
var (
	taskKeys      = append([]string{"files", "lang", "config", "description", "templates", "tests", "benchmarks", "test_timeout", "benchmark_timeout", "ranked_timeout", "ranking_by", "multi_gpu", "seed", "libraries", "gpus"}, extensionKeys...)
	extensionKeys = []string{"harness", "inputs", "evidence"}
	evidenceKeys  = []string{"runs", "width"}
	fileKeys      = []string{"name", "source"}
	pythonKeys    = []string{"main"}
	cudaKeys      = []string{"sources", "include_dirs", "defines", "compile_flags"}
	templates     = []string{"CUDA", "Python", "Triton", "HIP", "CuteDSL"}
)

// maxNodes bounds what aliases may expand to.
const maxNodes = 20_000

// decoder reads one document and collects every fault.
type decoder struct {
	file   string
	read   func(source string) (string, error)
	faults []error
	nodes  int
}

func (d *decoder) fault(n *yaml.Node, format string, args ...any) {
	d.faults = append(d.faults, &schema.Finding{File: d.file, Line: n.Line, Text: fmt.Sprintf(format, args...)})
}

// parse reads a task.yml. read returns the text of a file that it names. beside
// holds the keys of the [ExtensionFile].
//
// Errors: [schema.Finding]s, joined.
func parse(text, file string, beside object, read func(string) (string, error)) (*Task, error) {
	d := &decoder{file: file, read: read}
	root, err := d.document(text, "a task")
	if err != nil {
		return nil, err
	}
	t := d.task(root, beside)
	if err := errors.Join(d.faults...); err != nil {
		return nil, err
	}
	return t, nil
}

// parseExtension reads an [ExtensionFile].
func parseExtension(text, file string) (object, error) {
	d := &decoder{file: file}
	root, err := d.document(text, "keys")
	if err != nil {
		return nil, err
	}
	m := d.object(root, "the file", extensionKeys)
	e := d.extension(m)
	if e.Harness == "" {
		e.Harness = schema.HarnessIsolated // it may stand in task.yml
	}
	d.check(&e, m, root)
	return m, errors.Join(d.faults...)
}

// extension reads the keys that Kernelbot does not know.
func (d *decoder) extension(m object) schema.Extension {
	e := schema.Extension{Harness: d.str(m.get("harness"), "harness"), Inputs: d.str(m.get("inputs"), "inputs")}
	if n := m.get("evidence"); n != nil {
		evidence := d.object(n, "evidence", evidenceKeys)
		e.Evidence.Width = d.number(evidence.get("width"), "evidence: width")
		runs := d.number(evidence.get("runs"), "evidence: runs")
		if e.Evidence.Runs = int(runs); float64(e.Evidence.Runs) != runs {
			d.fault(n, "evidence: runs: got %v, want a whole number", runs)
		}
	}
	return e
}

// check notes what is wrong with an extension.
func (d *decoder) check(e *schema.Extension, m object, whole *yaml.Node) {
	e.Faults(func(key, got, want string) {
		name, _, _ := strings.Cut(key, ".")
		d.fault(cmp.Or(m.get(name), whole), "%s: got %s, want %s", key, got, want)
	})
}

// with adds the keys of the [ExtensionFile] to a task's.
func (d *decoder) with(m, beside object) object {
	for _, e := range beside {
		switch own := m.get(e.name); {
		case own == nil:
			m = append(m, e)
		case own.Kind != yaml.ScalarNode:
			d.fault(own, "%s: set here and in %s, want it in one of them", e.name, ExtensionFile)
		case own.Value != e.val.Value:
			d.fault(own, "%s: got %q, and %q in %s", e.name, own.Value, e.val.Value, ExtensionFile)
		}
	}
	return m
}

// document reads the one document of a file.
func (d *decoder) document(source, want string) (*yaml.Node, error) {
	dec := yaml.NewDecoder(strings.NewReader(source))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, &schema.Finding{File: d.file, Line: 1, Text: "the file is empty, want " + want}
	case err != nil:
		line, words := text.YAMLError(err)
		return nil, &schema.Finding{File: d.file, Line: max(1, line), Text: "not YAML: " + words}
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		d.fault(&doc, "more than one document in the file")
	}
	return doc.Content[0], nil
}

func (d *decoder) task(n *yaml.Node, beside object) *Task {
	t := &Task{RankingBy: schema.RankLast}
	m := d.object(n, "the task", taskKeys)
	if m == nil {
		return t
	}
	for _, key := range []string{"files", "lang", "config", "description"} {
		if m.get(key) == nil {
			d.fault(n, "no key %q, which every task needs", key)
		}
	}
	t.Lang = d.choice(m.get("lang"), "lang", schema.Languages(), "")
	m = d.with(m, beside)
	t.Extension = d.extension(m)
	d.check(&t.Extension, m, n)
	t.Files = d.files(m.get("files"))
	t.Config = d.config(m.get("config"), t)
	t.Description = d.str(m.get("description"), "description")
	t.Templates = d.templates(m.get("templates"))
	t.RankingBy = d.choice(m.get("ranking_by"), "ranking_by", schema.Rankings(), schema.RankLast)
	t.MultiGPU = d.bool(m.get("multi_gpu"), "multi_gpu")
	t.Tests = d.cases(m.get("tests"), "tests", t.MultiGPU)
	t.Benchmarks = d.cases(m.get("benchmarks"), "benchmarks", t.MultiGPU)
	t.TestTimeout = d.timeout(m.get("test_timeout"), "test_timeout")
	t.BenchmarkTimeout = d.timeout(m.get("benchmark_timeout"), "benchmark_timeout")
	t.RankedTimeout = d.timeout(m.get("ranked_timeout"), "ranked_timeout")
	t.Seed = d.seed(m.get("seed"))
	t.Libraries = d.strs(m.get("libraries"), "libraries")
	t.GPUs = d.strs(m.get("gpus"), "gpus")
	return t
}

// object is a YAML mapping whose keys are strings, in its order.
type object []entry

type entry struct {
	name string
	val  *yaml.Node
}

func (o object) get(name string) *yaml.Node {
	for _, e := range o {
		if e.name == name {
			return e.val
		}
	}
	return nil
}

// resolved follows an alias; nil (and a fault) once aliases have expanded to
// more than any task holds.
func (d *decoder) resolved(n *yaml.Node) *yaml.Node {
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.fault(n, "more than %d values", maxNodes)
		}
		return nil
	}
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// object reads a mapping; nil, and a fault, when it is something else. With
// known keys, any other is a fault.
func (d *decoder) object(n *yaml.Node, what string, known []string) object {
	n = d.resolved(n)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.fault(n, "%s: got %s, want keys and values", what, kindOf(n))
		return nil
	}
	d.untagged(n, what)
	m := object{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := d.resolved(n.Content[i])
		if key == nil {
			return nil
		}
		name, ok := d.key(key, what)
		switch {
		case !ok:
		case m.get(name) != nil:
			d.fault(key, "%s: the key %q occurs twice", what, name)
		case known != nil && !slices.Contains(known, name):
			d.fault(key, "%s: unknown key %q%s, have %q", what, name, near.Clause(name, known), known)
		default:
			m = append(m, entry{name, n.Content[i+1]})
		}
	}
	return m
}

// key reads a mapping's key, which must be a string in YAML 1.1 too: on and
// 1 are others.
func (d *decoder) key(n *yaml.Node, what string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		d.fault(n, "%s: got %s as a key, want a name", what, kindOf(n))
		return "", false
	}
	if n.Value == "<<" && n.Style == 0 {
		d.fault(n, "%s: merge keys (<<) are not read, write the keys out", what)
		return "", false
	}
	v, err := scalar(n)
	if err != nil || !isString(v) {
		d.fault(n, "%s: got the key %s, which YAML takes for another thing than a name; put it in quotes", what, text.Quote(n.Value))
		return "", false
	}
	return n.Value, true
}

func (d *decoder) untagged(n *yaml.Node, what string) {
	if n.Style&yaml.TaggedStyle != 0 {
		d.fault(n, "%s: got the tag %s, want none", what, n.Tag)
	}
}

// list reads a sequence; an absent one is empty.
func (d *decoder) list(n *yaml.Node, what string) []*yaml.Node {
	if n == nil {
		return nil
	}
	if n = d.resolved(n); n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		d.fault(n, "%s: got %s, want a list", what, kindOf(n))
		return nil
	}
	d.untagged(n, what)
	return n.Content
}

// value reads one scalar under PyYAML's rules; ok is false after a fault.
func (d *decoder) value(n *yaml.Node, what string) (v schema.Value, ok bool) {
	if n = d.resolved(n); n == nil {
		return v, false
	}
	if n.Kind != yaml.ScalarNode {
		d.fault(n, "%s: got %s, want one value", what, kindOf(n))
		return v, false
	}
	v, err := scalar(n)
	if err != nil {
		d.fault(n, "%s: got %v", what, err)
	}
	return v, err == nil
}

func (d *decoder) str(n *yaml.Node, what string) string {
	if n == nil {
		return ""
	}
	v, ok := d.value(n, what)
	if !ok {
		return ""
	}
	if !isString(v) {
		d.fault(n, "%s: got %s, want text; put it in quotes if that is meant", what, v.Text())
		return ""
	}
	return v.Text()
}

func (d *decoder) strs(n *yaml.Node, what string) []string {
	var all []string
	for _, item := range d.list(n, what) {
		all = append(all, d.str(item, what))
	}
	return all
}

func (d *decoder) number(n *yaml.Node, what string) float64 {
	if n == nil {
		return 0
	}
	v, ok := d.value(n, what)
	number, err := strconv.ParseFloat(v.JSON(), 64)
	if ok && err != nil {
		d.fault(n, "%s: got %s, want a number", what, v.Text())
	}
	return number
}

func (d *decoder) choice(n *yaml.Node, what string, have []string, absent string) string {
	if n == nil {
		return absent
	}
	s := d.str(n, what)
	if s != "" && !slices.Contains(have, s) {
		d.fault(n, "%s: got %q, want one of %q", what, s, have)
	}
	return s
}

func (d *decoder) bool(n *yaml.Node, what string) bool {
	if n == nil {
		return false
	}
	v, ok := d.value(n, what)
	if ok && v != schema.BoolValue(true) && v != schema.BoolValue(false) {
		d.fault(n, "%s: got %s, want true or false", what, v.Text())
	}
	return v == schema.BoolValue(true)
}

// timeout reads a limit in whole seconds; null is no limit, absent 180 s,
// which Kernelbot writes into the payload.
func (d *decoder) timeout(n *yaml.Node, what string) schema.Timeout {
	if n == nil {
		return schema.Seconds(schema.DefaultTimeout.Seconds())
	}
	v, ok := d.value(n, what)
	switch {
	case !ok:
		return schema.Timeout{}
	case v == schema.Value{}:
		return schema.NoLimit()
	}
	seconds, err := strconv.Atoi(v.JSON())
	if err != nil || seconds < 1 {
		d.fault(n, "%s: got %s, want whole seconds, or null for no limit", what, v.Text())
	}
	return schema.Seconds(float64(seconds))
}

func (d *decoder) seed(n *yaml.Node) *int64 {
	if n == nil {
		return nil
	}
	v, ok := d.value(n, "seed")
	if !ok || v == (schema.Value{}) {
		return nil
	}
	seed, err := strconv.ParseInt(v.JSON(), 10, 64)
	if err != nil {
		d.fault(n, "seed: want an integer of 64 bits") // its value is a secret
	}
	return &seed
}

func isString(v schema.Value) bool { return strings.HasPrefix(v.JSON(), `"`) }

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.Value == "" && n.Style == 0 {
		return "nothing"
	}
	return text.Quote(n.Value)
}
