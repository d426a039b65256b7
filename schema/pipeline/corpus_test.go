package pipeline

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/schema"
)

var update = flag.Bool("update", false, "rewrite testdata/corpus/*.txt and docs/rules.md from what Check returns")

// xes stands for a text of that many characters in a document of the corpus.
var xes = regexp.MustCompile(`@@(\d+)@@`)

// corpusFile reads one document. Those whose name begins with strict_ are held
// against the strict subset, and with first_ are what a build begins with.
func corpusFile(t testing.TB, path string) (text []byte, opts Options) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = xes.ReplaceAllFunc(text, func(mark []byte) []byte {
		n, err := strconv.Atoi(string(mark[2 : len(mark)-2]))
		if err != nil {
			t.Fatal(err)
		}
		return []byte(strings.Repeat("x", n))
	})
	opts.Strict = strings.HasPrefix(filepath.Base(path), "strict_")
	opts.First = strings.HasPrefix(filepath.Base(path), "first_")
	opts.Complete = strings.Contains(path, "KB106")
	if !opts.Strict && !strings.Contains(path, "KB20") {
		opts.Ignore = []string{"KB201", "KB202"} // nearly everything here lacks both
	}
	return text, opts
}

func corpusPaths(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "corpus", dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// golden compares got with a file, or rewrites the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), rewritten by -update:\n%s", path, diff)
	}
}

func TestCorpus(t *testing.T) {
	sum := 0
	for _, dir := range []string{"right", "wrong"} {
		var got strings.Builder
		paths := corpusPaths(t, dir)
		sum += len(paths)
		for _, path := range paths {
			text, opts := corpusFile(t, path)
			findings := Check(text, opts)
			fmt.Fprintf(&got, "== %s\n", filepath.Base(path))
			worst := Off
			for _, f := range findings {
				fmt.Fprintf(&got, "%d:%d: %s: %s\n", f.Line, f.Column, f.Severity, f.Message())
				worst = max(worst, f.Severity)
			}
			switch {
			case dir == "right" && worst >= Warning:
				t.Errorf("%s is right, Check = %v", path, findings)
			case dir == "wrong" && worst == Off:
				t.Errorf("%s is wrong, Check found nothing", path)
			case opts.Strict && (validate(text) == nil) != (worst < Error):
				t.Errorf("%s: Parse = %v, but the worst that Check found is %s", path, validate(text), worst)
			}
		}
		golden(t, filepath.Join("testdata", "corpus", dir+".txt"), got.String())
	}
	if sum < 100 {
		t.Errorf("the corpus has %d documents, want at least 100", sum)
	}
}

// Every rule has a bad example, in the file named after it, and the example
// breaks the rule.
func TestEveryRuleHasAnExample(t *testing.T) {
	paths := corpusPaths(t, "wrong")
	for _, r := range Rules() {
		i := slices.IndexFunc(paths, func(p string) bool { return strings.Contains(filepath.Base(p), r.ID+".") })
		if i < 0 {
			t.Errorf("%s (%s): no testdata/corpus/wrong/%s.yml", r.ID, r.Title, r.ID)
			continue
		}
		text, opts := corpusFile(t, paths[i])
		if !slices.ContainsFunc(Check(text, opts), func(f schema.Finding) bool { return f.Rule == r.ID }) {
			t.Errorf("%s: Check = %v, want a finding of %s (%s)", paths[i], Check(text, opts), r.ID, r.Title)
		}
		ignored := opts
		ignored.Ignore = append([]string{r.ID}, opts.Ignore...)
		if slices.ContainsFunc(Check(text, ignored), func(f schema.Finding) bool { return f.Rule == r.ID }) {
			t.Errorf("%s: found although ignored", r.ID)
		}
	}
}

func TestRulesAreSortedAndComplete(t *testing.T) {
	for i, r := range Rules() {
		if i > 0 && Rules()[i-1].ID >= r.ID {
			t.Errorf("rule %s stands behind %s", r.ID, Rules()[i-1].ID)
		}
		if r.Strict < r.Severity || r.Strict == Off || r.Title == "" || r.Text == "" {
			t.Errorf("rule %+v is incomplete, or milder for kbgen than for others", r)
		}
	}
}

func TestRulesPage(t *testing.T) {
	golden(t, filepath.Join("..", "..", "docs", "rules.md"), rulesPage(t))
}

// rulesPage writes the rules down for people, with an example of each and
// exactly what is reported for it.
func rulesPage(t *testing.T) string {
	var page strings.Builder
	page.WriteString(rulesHead)
	subject := byte(0)
	for _, r := range Rules() {
		if r.ID[2] != subject {
			subject = r.ID[2]
			fmt.Fprintf(&page, "\n## %s\n", subjects[subject-'0'])
		}
		fmt.Fprintf(&page, "\n### %s: %s\n\n%s; with `--strict` %s. %s\n\n", r.ID, r.Title, capital(r.Severity.String()), r.Strict, r.Text)
		path := filepath.Join("testdata", "corpus", "wrong", r.ID+".yml")
		if _, err := os.Stat(path); err != nil {
			path = filepath.Join("testdata", "corpus", "wrong", "strict_"+r.ID+".yml")
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text, opts := corpusFile(t, path)
		fmt.Fprintf(&page, "```yaml\n%s```\n\n```\n", xes.ReplaceAll(raw, []byte("<$1 characters>")))
		for _, f := range Check(text, opts) {
			if f.Rule == r.ID {
				fmt.Fprintf(&page, "%d:%d: %s: %s\n", max(1, f.Line), max(1, f.Column), f.Severity, f.Message())
			}
		}
		page.WriteString("```\n")
	}
	return page.String()
}

// subjects are those of the first digit of a rule's number.
var subjects = []string{
	"Documents and their format", "Dependencies", "Policy", "Limits", "Variables", "Retries and soft failures", "Plugins", "Secrets", "The agent's parser",
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

const rulesHead = `# What kbgen checks

Written by ` + "`go test ./schema/pipeline -update`" + `, do not edit.

` + "`kbgen check FILE`" + ` holds any Buildkite pipeline against these rules; what kbgen itself writes has
passed them with ` + "`--strict`" + ` before anybody sees it. The rules know no GPU types and no queues: that a
queue exists and a timeout fits is checked where the table of GPU types is.

**error**: Buildkite or the agent refuses it, or it does something else than it says.
**warning**: most likely not what was meant. **info**: worth knowing, and common in good pipelines;
shown with ` + "`--severity info`" + `. **off**: asked of kbgen's own pipelines only.

A comment allows a finding, with its reason, for its own line, for the line below when it stands alone,
or for a whole step when it stands above or behind the step's first line:

` + "```yaml" + `
          privileged: true # kbgen:allow KB205 the profiler needs performance counters
` + "```" + `

The syntax of conditions and the names in them are checked. Settings are checked of the plugins docker,
docker-compose, docker-login, artifacts and kubernetes, at the versions in
schema/pipeline/plugintable.go.
`
