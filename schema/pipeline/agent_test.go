package pipeline

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agentparser "github.com/buildkite/go-pipeline"
	"github.com/buildkite/go-pipeline/warning"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/internal/testenv"
)

// parserSays returns the rule that the agent's real parser breaks with the
// stream, "" when it takes it without a warning, and its words.
func parserSays(stream []byte) (rule, words string) {
	for _, err := range agentparser.ParseAll(bytes.NewReader(stream)) {
		switch {
		case err == nil:
		case warning.As(err) == nil:
			return "KB801", err.Error()
		default:
			rule, words = "KB802", err.Error()
		}
	}
	return rule, words
}

// weSay is the same of ours; judged is false when the format refuses the
// stream, so that nobody asks further.
func weSay(stream []byte) (rule string, judged bool) {
	c := &checker{keys: map[string]*step{}, severities: severities(Options{})}
	c.stream(stream)
	for _, f := range c.findings {
		switch {
		case f.Rule == "KB801":
			return f.Rule, true
		case f.Rule == "KB802":
			rule = f.Rule
		case f.Rule[:3] == "KB0" && f.Severity >= Warning:
			return "", false
		}
	}
	return rule, true
}

func agree(t *testing.T, stream []byte) (judged bool) {
	t.Helper()
	got, judged := weSay(stream)
	if !judged {
		return false
	}
	want, words := parserSays(stream)
	if got == "KB802" && want == "" { // the parser forgets warnings about steps when more stands beside them
		want, words = parserSays(stepsOnly(stream))
	}
	if got != want {
		t.Errorf("we say %q, the agent's parser %q (%s) of\n%s", got, want, words, stream)
	}
	return true
}

// stepsOnly returns the stream with nothing in its documents but steps, those
// of groups beside their groups.
func stepsOnly(stream []byte) []byte {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	dec := yaml.NewDecoder(bytes.NewReader(stream))
	for {
		var tree yaml.Node
		if dec.Decode(&tree) != nil {
			return out.Bytes()
		}
		c := &checker{severities: severities(Options{})}
		r := resolver{c: c}
		root := r.resolve(tree.Content[0])
		if steps := child(root, "steps"); steps != nil {
			root = steps
		}
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, s := range root.Content {
			list.Content = append(list.Content, s)
			inner := child(s, "steps")
			if inner == nil || inner.Kind != yaml.SequenceNode {
				continue
			}
			list.Content = append(list.Content, inner.Content...)
			for i := 0; i < len(s.Content); i += 2 {
				if s.Content[i].Value == "steps" {
					s.Content = slices.Delete(s.Content, i, i+2)
					break
				}
			}
		}
		enc.Encode(list)
	}
}

// Check reports KB801 and KB802 exactly if the agent's parser refuses or warns
// about the text: for every document of the corpora and thousands of broken
// variants.
func TestAgreesWithAgentParser(t *testing.T) { agreeWithAgentParser(t, 3_000) }

func TestSlowAgreesWithAgentParser(t *testing.T) {
	testenv.NeedSlow(t)
	agreeWithAgentParser(t, 1_000_000)
}

func agreeWithAgentParser(t *testing.T, rounds int) {
	t.Helper()
	var texts [][]byte
	var trees []any
	for _, pattern := range []string{"testdata/corpus/*/*.y*ml", "../../testdata/golden/*/*.y*ml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files match %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			agree(t, text)
			texts = append(texts, text)
			var tree any
			if yaml.Unmarshal(text, &tree) == nil && tree != nil {
				trees = append(trees, tree)
			}
		}
	}
	mutate := newMutator(t)
	judged := 0
	for n := range rounds {
		var text []byte
		if n%4 == 0 {
			text = mutate.lines(texts)
		} else {
			tree := trees[mutate.IntN(len(trees))]
			for range 1 + mutate.IntN(4) {
				tree = mutate.value(tree, 0)
			}
			var err error
			if text, err = yaml.Marshal(tree); err != nil {
				continue
			}
		}
		if agree(t, text) {
			judged++
		}
		if t.Failed() {
			return
		}
	}
	if judged < rounds/20 {
		t.Errorf("the format left %d of %d variants to judge: that compares too little", judged, rounds)
	}
}

// A mutator breaks documents, always in the same way.
type mutator struct {
	*rand.Rand
	keys []string // that the format knows anywhere
	odd  []any
}

func newMutator(t *testing.T) *mutator {
	t.Helper()
	var all struct {
		Definitions map[string]struct{ Properties map[string]any }
	}
	if err := json.Unmarshal(format, &all); err != nil {
		t.Fatal(err)
	}
	m := &mutator{Rand: rand.New(rand.NewPCG(3, 4))}
	for _, d := range all.Definitions {
		for key := range d.Properties {
			m.keys = append(m.keys, key)
		}
	}
	slices.Sort(m.keys)
	m.keys = slices.Compact(m.keys)
	m.odd = []any{nil, true, "", "text", "a b=c", "$X", "a", 1, -1, 0, 2.5, []any{}, []any{1}, []any{"a", true, 1.5}, map[string]any{}, map[string]any{"a": "c"},
		map[string]any{"a": []any{"b", 1}}, []any{map[string]any{"a": 1}}, []any{nil}, map[string]any{"a": nil}, map[string]any{"key": "k"}, []any{map[string]any{"key": "k"}}}
	return m
}

// value returns a copy of v with one part replaced, added or taken away.
func (m *mutator) value(v any, depth int) any {
	other := func() any { return m.odd[m.IntN(len(m.odd))] }
	if depth > 0 && m.IntN(5) == 0 {
		return other()
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		var names []string
		for key, part := range v {
			out[key] = part
			names = append(names, key)
		}
		slices.Sort(names)
		switch {
		case len(names) == 0 || m.IntN(3) == 0:
			out[m.keys[m.IntN(len(m.keys))]] = other()
		case m.IntN(5) == 0:
			delete(out, names[m.IntN(len(names))])
		default:
			key := names[m.IntN(len(names))]
			out[key] = m.value(out[key], depth+1)
		}
		return out
	case []any:
		out := slices.Clone(v)
		if len(out) == 0 || m.IntN(4) == 0 {
			return append(out, other())
		}
		i := m.IntN(len(out))
		out[i] = m.value(out[i], depth+1)
		return out
	}
	return other()
}

// lines returns one of the texts with a line of another put into it, taken out
// of it, or written otherwise.
func (m *mutator) lines(texts [][]byte) []byte {
	lines := strings.SplitAfter(string(texts[m.IntN(len(texts))]), "\n")
	i := m.IntN(len(lines))
	switch m.IntN(4) {
	case 0:
		lines = slices.Delete(lines, i, i+1)
	case 1:
		lines = slices.Insert(lines, i, lines[m.IntN(len(lines))])
	case 2:
		other := strings.SplitAfter(string(texts[m.IntN(len(texts))]), "\n")
		lines = slices.Insert(lines, i, other[m.IntN(len(other))])
	default:
		key, _, found := strings.Cut(lines[i], ":")
		values := []string{"~", "2026-01-01", "!!str 1", "!!binary YQ==", "&a b", "*a", "0x10", "1e3", ".inf", "'2026-01-01'", "{<<: {a: b}}", "[a, [b]]", "{a: b}", "yes", "0o17", "|-\n        x", "? a"}
		if found {
			lines[i] = key + ": " + values[m.IntN(len(values))] + "\n"
		}
	}
	return []byte(strings.Join(lines, ""))
}

func FuzzAgentParser(f *testing.F) {
	for _, s := range []string{"steps: [{command: a}]", "steps:\n- plugins: $X\n", "steps: [wait]\nsecrets: {A: null}", "steps: [{command: a, label: 2026-01-01}]", "- command: a\n  checkout: {skip: $X}\n",
		"x: &x {command: a}\nsteps: [{<<: *x, label: b}]", "steps: [{group: g, steps: [{command: a, secrets: null}]}]", "steps: [{trigger: a, label: 2026-01-01}]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		if len(stream) < 2000 {
			agree(t, stream)
		}
	})
}
