package pipeline

import (
	"fmt"
	"strings"
	"testing"
)

// Documents far beyond what Buildkite takes are told so at once: what is looked for
// in them does not grow with the square of their size. Without that the first of
// these alone takes minutes.
func TestHugeDocuments(t *testing.T) {
	lines := func(head string, n int, line func(i int) string) string {
		var b strings.Builder
		b.WriteString(head)
		for i := range n {
			b.WriteString(line(i))
		}
		return b.String()
	}
	for _, tt := range []struct{ name, text, rule string }{
		{"dependencies on nothing", lines("steps:\n", 20_000, func(i int) string {
			return fmt.Sprintf("- {command: make, key: step-number-%d-x, depends_on: none-of-%d-them}\n", i, i)
		}), "KB105"},
		{"variables and comments", lines("steps:\n- command: |\n", 30_000, func(i int) string {
			return fmt.Sprintf("    x%d=$y%d # $z\n", i, i)
		}), "KB308"},
		{"here-documents", lines("steps:\n- command: |\n", 30_000, func(i int) string {
			return fmt.Sprintf("    cat <<E%d # $z\n", i)
		}), "KB308"},
		{"commands", lines("steps:\n- command:\n", 20_000, func(i int) string {
			return fmt.Sprintf("  - x%d=$y%d\n", i, i)
		}), "KB308"},
		{"words", "steps:\n- command: make\n  depends_on: " + strings.Repeat("b", 600) + "\n- {command: make, key: " + strings.Repeat("b", 601) + "}\n", "KB105"},
	} {
		found := false
		for _, f := range Check([]byte(tt.text), Options{}) {
			found = found || f.Rule == tt.rule
		}
		if !found {
			t.Errorf("%s: no finding of %s", tt.name, tt.rule)
		}
	}
}

func TestShellComments(t *testing.T) {
	for text, want := range map[string]string{
		"a # b\nc":                            "# b",
		"# a\n#b":                             "# a|#b",
		"a#b":                                 "",
		`echo "# a" # b`:                      "# b",
		`echo '# a' # b`:                      "# b",
		"echo \\# a":                          "",
		"echo '\\' # b":                       "# b",
		"cat <<END\n# a\nEND\n# b":            "# b",
		"cat <<-'E'; cat <<F # x\n\tE\nF\n#y": "# x|#y",
		"cat <<<'# a' # b":                    "# b",
		"cat <<END\n# a":                      "",
		"$# a":                                "",
		"${#a} (# b":                          "# b",
		"a \"b\n# c\" # d":                    "# d",
		"<<":                                  "",
		"\\":                                  "",
	} {
		var got []string
		for _, c := range shellComments(text) {
			got = append(got, text[c[0]:c[1]])
		}
		if strings.Join(got, "|") != want {
			t.Errorf("shellComments(%q) = %q, want %q", text, got, want)
		}
	}
}
