package pipeline

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/schema/token"
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
		if value.Kind != yaml.ScalarNode || value.ShortTag() != "!!str" || !schema.RedactedName(key.Value) {
			return
		}
		switch {
		case sealed(key.Value, value.Value):
			c.report("KB703", value, join(path, key.Value), "the variable %s, which agents from version 4 on refuse for its name, want another name, as %s_KBSEC", key.Value, secretOf(key.Value))
		case secretValue(value.Value):
			c.report("KB701", value, join(path, key.Value), "the value of %s is in the text", key.Value)
		}
	})
}

// Variables that carry encrypted values: kbgen secret's, and those of the tools
// before it, with the form of their values.
var (
	oldSecret = text.Pattern(`^(CRYPTIC_ADHOC_)?SECRET_`)
	oldValue  = text.Pattern(`^[A-Za-z0-9+/]{86,}=*(;[A-Za-z0-9+/]+=*)?$`)
)

// sealed reports whether a variable carries an encrypted value.
func sealed(name, value string) bool {
	return strings.HasPrefix(value, "kbsec1:") || oldSecret().MatchString(name) && oldValue().MatchString(value)
}

// secretOf is the secret's name within its variable's.
func secretOf(variable string) string { return oldSecret().ReplaceAllString(variable, "") }

// secretPlugins fetch secrets into a job's environment.
var secretPlugins = []string{
	"cryptic", "vault-secrets", "aws-sm", "aws-ssm", "s3-secrets", "gcp-secrets", "gcp-secret-manager", "onepassword-connect", "1password", "secrets",
}

var (
	runsSubmission = text.Pattern(`(^|[\s/;&|"'])kbrun(\s+-\S+)*\s+evaluate\b`)
	asksForSecret  = text.Pattern(`\b(kbgen(-| )secret get|buildkite-agent secret get)\b`)
)

// untrusted reports whether a step runs a submission.
func untrusted(s *step) bool {
	if mark := child(child(s.node, "env"), schema.EnvUntrusted); mark != nil && mark.Value == "true" {
		return true
	}
	return runsSubmission().MatchString(commandText(s.node))
}

// commands lists what a step runs.
func commands(n *yaml.Node) []*yaml.Node {
	return slices.Concat(items(child(n, "command")), items(child(n, "commands")))
}

// commandText is what a step runs as one text.
func commandText(n *yaml.Node) string {
	var all strings.Builder
	for _, at := range commands(n) {
		scalars(at, "", func(line *yaml.Node, _ string) { all.WriteString(line.Value + "\n") })
	}
	return all.String()
}

// trust looks for secrets that reach a step which runs a submission.
func (c *checker) trust(d *document, s *step) {
	if !untrusted(s) {
		return
	}
	const beside = "this step runs a submission, want none here: a step of its own posts results"
	for _, at := range []struct {
		node *yaml.Node
		path string
	}{{d.root, d.path}, {s.node, s.path + "."}} {
		if n := child(at.node, "secrets"); n != nil {
			c.report("KB704", n, at.path+"secrets", "got secrets: %s", beside)
		}
		entries(child(at.node, "env"), func(key, value *yaml.Node) {
			if sealed(key.Value, value.Value) || strings.HasSuffix(key.Value, "_KBSEC") {
				c.report("KB704", value, at.path+"env."+key.Value, "got an encrypted secret: %s", beside)
			}
		})
	}
	for _, p := range pluginsOf(s) {
		if slices.Contains(secretPlugins, p.name) {
			c.report("KB704", p.at, p.path, "got the plugin %s, which fetches secrets: %s", quote(p.source), beside)
		}
	}
	if asksForSecret().MatchString(commandText(s.node)) {
		c.report("KB704", s.node, s.path, "got a command that asks for a secret: %s", beside)
	}
}

// secretText looks for tokens anywhere in a document.
func (c *checker) secretText(d *document) {
	scalars(d.root, d.path, func(n *yaml.Node, path string) {
		for _, t := range token.All(n.Value) {
			f := schema.Finding{Path: path}
			f.Line, f.Column = c.position(n, t.Offset, t.Mark)
			c.add("KB702", f, "the text holds %s", t.What)
		}
	})
}
