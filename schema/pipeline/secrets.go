package pipeline

import (
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

var (
	pathLike    = text.Pattern(`^[\w.-]*(/[\w.@-]+)+/?$|^[a-z][a-z0-9+.-]*://[^@\s]*$|^arn:|^(secret|vault|kv|ref|op)[:/]`)
	placeholder = text.Pattern(`(?i)^(|true|false|null|none|x+|\*+|\d{1,6}|<.*>|your[-_ ].*|change-?me|dummy|fake|test(ing)?|example|password|secret|token|redacted|placeholder)$`)
)

// secretValue reports whether a value could be what its name says, and is not
// the place where the secret lies, or a stand-in for it.
func secretValue(value string) bool {
	return !isVariable(value) && len(value) >= 6 && !pathLike().MatchString(value) && !placeholder().MatchString(value) &&
		(len(value) >= 12 || strings.ContainsAny(value, "0123456789"))
}

// secretEnv looks for values of variables whose names say that they are secret.
func (c *checker) secretEnv(env *yaml.Node, path string) {
	entries(env, func(key, value *yaml.Node) {
		if value.Kind == yaml.ScalarNode && value.ShortTag() == "!!str" && schema.RedactedName(key.Value) && secretValue(value.Value) {
			c.report("KB701", value, join(path, key.Value), "the value of %s is in the text", key.Value)
		}
	})
}

// tokenMarks begin texts that are secrets, whatever they are called.
var tokenMarks = []struct {
	mark string
	what string
	form func() *regexp.Regexp
}{
	{"ghp_", "a GitHub token", text.Pattern(`\bghp_[A-Za-z0-9]{36}\b`)},
	{"github_pat_", "a GitHub token", text.Pattern(`\bgithub_pat_[A-Za-z0-9_]{60,}`)},
	{"bkua_", "a Buildkite API token", text.Pattern(`\bbkua_[0-9a-f]{40}\b`)},
	{"hf_", "a Hugging Face token", text.Pattern(`\bhf_[A-Za-z0-9]{34}\b`)},
	{"glpat-", "a GitLab token", text.Pattern(`\bglpat-[A-Za-z0-9_-]{20}\b`)},
	{"xox", "a Slack token", text.Pattern(`\bxox[baprs]-[0-9]{6,}-[A-Za-z0-9-]{10,}`)},
	{"AKIA", "an AWS access key", text.Pattern(`\bAKIA[0-9A-Z]{16}\b`)},
	{"PRIVATE KEY-----", "a private key", text.Pattern(`-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{20,}`)},
}

// secretText looks for tokens anywhere in a document.
func (c *checker) secretText(d *document, n *yaml.Node) {
	for _, inner := range n.Content {
		c.secretText(d, inner)
	}
	if len(n.Value) < 20 {
		return
	}
	for _, t := range tokenMarks {
		if i := strings.Index(n.Value, t.mark); i >= 0 && t.form().MatchString(n.Value) {
			path, _ := pathTo(d.root, n)
			f := schema.Finding{Path: d.path + path}
			f.Line, f.Column = c.position(n, i, t.mark)
			c.add("KB702", f, "the text holds %s", t.what)
		}
	}
}

// pathTo returns the path from a tree to one of its nodes.
func pathTo(root, n *yaml.Node) (path string, ok bool) {
	for i, inner := range root.Content {
		step := ""
		switch {
		case root.Kind == yaml.SequenceNode:
			step = index("", i)
		case i%2 == 1:
			step = "." + root.Content[i-1].Value
		}
		if inner == n {
			return strings.TrimPrefix(step, "."), true
		}
		if rest, ok := pathTo(inner, n); ok {
			if rest != "" && rest[0] != '[' {
				rest = "." + rest
			}
			return strings.TrimPrefix(step+rest, "."), true
		}
	}
	return "", false
}
