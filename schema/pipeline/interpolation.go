package pipeline

import (
	"strings"
	"unicode"

	"github.com/buildkite/interpolate"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// An expansion is a variable that the agent replaces when it uploads.
type expansion struct {
	name   string
	text   string // as written, up to its name: "${NAME" or "$NAME"
	rest   string // the form within braces behind the name: ":-8"
	offset int    // of the dollar sign
}

// expansions finds the variables in a text that the agent replaces, those in
// the defaults of others included. Escaped ones are text.
func expansions(s string) []expansion {
	var all []expansion
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], `\\`), strings.HasPrefix(s[i:], `\$`), strings.HasPrefix(s[i:], `$$`), strings.HasPrefix(s[i:], `$(`):
			i += 2
		case s[i] == '$':
			start := i
			i++
			brace := i < len(s) && s[i] == '{'
			if brace {
				i++
			}
			name := identifier(s[i:])
			i += len(name)
			if name == "" {
				continue
			}
			e := expansion{name: name, text: s[start:i], offset: start}
			if brace {
				if end := strings.IndexByte(s[i:], '}'); end >= 0 {
					e.rest = s[i : i+end]
				}
				e.text += e.rest + "}"
			}
			all = append(all, e)
		default:
			i++
		}
	}
	return all
}

// identifier returns the name that a text begins with: a letter, then letters,
// digits and underscores.
func identifier(s string) string {
	for i, r := range s {
		if !unicode.IsLetter(r) && (i == 0 || !unicode.IsNumber(r) && r != '_') {
			return s[:i]
		}
	}
	return s
}

// A place says what a text is for, as far as variables matter.
type place struct {
	step    *step // nil outside steps
	command bool  // the job's shell expands what the upload leaves
	plugin  bool
	name    string // key of the step
}

// variables checks every text of a document that the upload interpolates.
func (c *checker) variables(d *document) {
	known := map[string]bool{} // by the env at the top, which the upload reads first
	entries(child(d.root, "env"), func(key, _ *yaml.Node) { known[key.Value] = true })
	entries(d.root, func(key, value *yaml.Node) {
		if key.Value == "steps" || key.Value == "signature" {
			return
		}
		c.texts(value, d.path+key.Value, place{name: key.Value}, known)
	})
	for _, s := range d.steps {
		entries(s.node, func(key, value *yaml.Node) {
			if s.kind == "group" && key.Value == "steps" {
				return
			}
			c.texts(value, join(s.path, key.Value), place{
				step: s, name: key.Value,
				command: key.Value == "command" || key.Value == "commands",
				plugin:  key.Value == "plugins",
			}, known)
		})
	}
}

// texts checks the scalars below n. The lines of a command are one script.
func (c *checker) texts(n *yaml.Node, path string, at place, known map[string]bool) {
	var script *script
	if at.command {
		script = newScript(n)
	}
	scalars(n, path, func(n *yaml.Node, path string) {
		if !strings.Contains(n.Value, "$") {
			return
		}
		if broken := c.broken(n, path); broken {
			return
		}
		for _, e := range expansions(n.Value) {
			c.expansion(n, path, at, e, known, script)
		}
	})
}

// broken reports an expansion that the agent cannot parse: it refuses the
// whole upload then.
func (c *checker) broken(n *yaml.Node, path string) bool {
	if !strings.Contains(n.Value, "${") {
		return false // every other form is taken
	}
	_, err := interpolate.NewParser(n.Value).Parse()
	if err == nil {
		return false
	}
	at, what := brokenExpansion(n.Value)
	f := schema.Finding{Path: path}
	f.Line, f.Column = c.position(n, at, what)
	c.add("KB401", f, "the agent cannot expand %s and refuses the upload, want $%s for the job's shell", quote(what), what)
	return true
}

// brokenExpansion finds the first expansion in braces that does not parse by
// itself.
func brokenExpansion(s string) (offset int, text string) {
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], `\\`), strings.HasPrefix(s[i:], `\$`), strings.HasPrefix(s[i:], `$$`), strings.HasPrefix(s[i:], `$(`):
			i++
		case strings.HasPrefix(s[i:], "${"):
			if _, err := interpolate.NewParser(s[i:]).Parse(); err == nil {
				continue
			}
			if end := strings.IndexAny(s[i:], "}\n"); end >= 0 {
				one := s[i : i+end+1]
				if _, err := interpolate.NewParser(one).Parse(); err != nil {
					return i, strings.TrimSuffix(one, "\n")
				}
				continue
			}
			return i, s[i:]
		}
	}
	return 0, s
}

// position returns the line and column of a word at an offset in a scalar's
// text, exactly where the text is written as it is, else those of the scalar.
func (c *checker) position(n *yaml.Node, offset int, word string) (line, column int) {
	line, column = n.Line, n.Column
	if n.Style == yaml.LiteralStyle {
		line, column = line+1+c.newlines(n, min(offset, len(n.Value))), 1
	}
	if c.lines == nil {
		c.lines = strings.Split(string(c.text), "\n")
	}
	if line-1 < len(c.lines) && column-1 <= len(c.lines[line-1]) {
		if i := strings.Index(c.lines[line-1][column-1:], word); i >= 0 {
			column += i
		}
	}
	return line, column
}

// newlines counts the line ends before an offset. Offsets of one text come in
// their order, so that each goes on where the last one stopped.
func (c *checker) newlines(n *yaml.Node, offset int) int {
	if n != c.counted.node || offset < c.counted.offset {
		c.counted.node, c.counted.offset, c.counted.lines = n, 0, 0
	}
	c.counted.lines += strings.Count(n.Value[c.counted.offset:offset], "\n")
	c.counted.offset = offset
	return c.counted.lines
}

// Variables that only the machine of a job has: what hooks of a GPU node set.
var machineVariable = text.Pattern(`^(KERNELBOT_(CPUS|CPUSET|MEMORY|GPU_INDEX|GPU_DEVICE|GPU_UUID)|KB_(GPU_DEVICE|GPU_INDEX|CPUS|MEMORY|VENDOR)|(CUDA|NVIDIA|ROCR|HIP)_VISIBLE_DEVICES)$`)

// Variables that every job has, each with another value.
var jobVariable = text.Pattern(`^BUILDKITE_(PARALLEL_JOB|PARALLEL_JOB_COUNT|RETRY_COUNT|COMMAND_EXIT_STATUS|LAST_HOOK_EXIT_STATUS|AGENT_NAME|BUILD_CHECKOUT_PATH)$`)

// expansion checks one variable that the upload replaces.
func (c *checker) expansion(n *yaml.Node, path string, at place, e expansion, known map[string]bool, script *script) {
	f := schema.Finding{Path: path}
	f.Line, f.Column = c.position(n, e.offset, e.text)
	machine := !known[e.name] && machineVariable().MatchString(e.name)
	if script.comments(n, e.offset) && !schema.RedactedName(e.name) {
		// Nobody runs it.
		c.add("KB406", f, "%s is replaced when the pipeline is uploaded, want the value, or $%s for the job", e.text, e.text)
		return
	}
	switch {
	case schema.RedactedName(e.name) && !known[e.name]:
		c.add("KB705", f, "%s is replaced when the pipeline is uploaded: the secret would stand in the pipeline, want $%s", e.text, e.text)
	case machine && !at.command:
		c.add("KB402", f, "%s is replaced when the pipeline is uploaded, where %s is not the job's: every machine gets %s. %s",
			e.text, e.name, e.becomes(), advice(at))
	case machine, at.command && jobVariable().MatchString(e.name) && !known[e.name]:
		c.add("KB403", f, "%s is replaced when the pipeline is uploaded, by the uploading job's own value, want $%s", e.text, e.text)
	case at.command && !known[e.name] && script.sets(n, e):
		c.add("KB404", f, "%s is replaced when the pipeline is uploaded, before the command sets it, want $%s", e.text, e.text)
	case at.command && !known[e.name] && at.step != nil && setsItself(child(at.step.node, "env"), e):
		c.add("KB405", f, "%s is replaced when the pipeline is uploaded, which does not know the step's env, want $%s", e.text, e.text)
	default:
		c.add("KB406", f, "%s is replaced when the pipeline is uploaded, want the value, or $%s for the job", e.text, e.text)
	}
}

// becomes says what an expansion leaves where its variable is not set.
func (e expansion) becomes() string {
	switch {
	case strings.HasPrefix(e.rest, ":-"):
		return quote(e.rest[2:])
	case strings.HasPrefix(e.rest, "-"):
		return quote(e.rest[1:])
	case strings.HasPrefix(e.rest, "?"):
		return "nothing: the upload fails"
	}
	return "an empty text"
}

// advice says where the value can come from instead.
func advice(at place) string {
	switch {
	case at.plugin:
		return "The plugin expands nothing by itself: leave the setting to the machine's environment hook, or write the value"
	case at.name == "env":
		return "Leave it out: the machine's hook sets it for the job"
	}
	return "Write the value"
}

// setsItself reports whether an env gives a variable a value of its own: not
// that of the upload, nor the one that the expansion leaves there.
func setsItself(env *yaml.Node, e expansion) bool {
	v := child(env, e.name)
	if v == nil || strings.Contains(v.Value, "$"+e.name) || strings.Contains(v.Value, "${"+e.name) {
		return false
	}
	left, defaults := strings.CutPrefix(strings.TrimPrefix(e.rest, ":"), "-")
	return !defaults || left != v.Value
}

// A script knows where a step's commands set variables.
type script struct {
	starts map[*yaml.Node]int // of each command in the whole text
	set    map[string]int     // to the offset of the first setting
	hidden [][2]int           // comments, from and to
}

var assignment = text.Pattern(`(?m)(?:^|[;&|({]|\bthen|\bdo|\belse)[ \t]*(?:(?:export|local|declare|readonly|typeset)[ \t]+(?:-[A-Za-z]+[ \t]+)*)?([A-Za-z][A-Za-z0-9_]*)=(?:[^\s;&|"'$(]|"[^"]*"|'[^']*'|\$+\([^()]*\)|\$+\{[^}]*\}|\$)*[ \t]*(?:$|[;&|)#])|\bfor[ \t]+([A-Za-z][A-Za-z0-9_]*)[ \t]+in\b|\bread[ \t]+(?:-[A-Za-z]+[ \t]+)*([A-Za-z][A-Za-z0-9_]*)`)

func newScript(n *yaml.Node) *script {
	s := &script{starts: map[*yaml.Node]int{}, set: map[string]int{}}
	var all strings.Builder
	for _, line := range items(n) {
		s.starts[line] = all.Len()
		all.WriteString(line.Value)
		all.WriteByte('\n')
	}
	if !strings.Contains(all.String(), "$") {
		return s
	}
	s.hidden = shellComments(all.String())
	for _, m := range assignment().FindAllStringSubmatchIndex(all.String(), -1) {
		for g := 2; g < len(m); g += 2 {
			if m[g] < 0 || s.inComment(m[g]) {
				continue
			}
			name := all.String()[m[g]:m[g+1]]
			if _, earlier := s.set[name]; !earlier {
				s.set[name] = m[1]
			}
		}
	}
	return s
}

// sets reports whether the script sets a variable before it uses it.
func (s *script) sets(n *yaml.Node, e expansion) bool {
	if s == nil {
		return false
	}
	at, ok := s.set[e.name]
	if !ok {
		return false
	}
	offset, ok := s.at(n, e.offset)
	return ok && offset >= at
}
