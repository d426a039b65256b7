package runner_test

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

var table = flag.Bool("table", false, "print what became of every attack")

const corpus = "testdata/attacks"

// An attack is one entry of the manifest.
type attack struct {
	Name, Tries, Program, Harness, Mode string
	Outcomes, Needs, Forbidden, Leaks   []string
	Open, Then                          string
	Untimed                             string // "passed": what is not timed may pass
	Control, Both, Cancel, Quick        bool
	Seed, Secret                        bool
	Limit                               int
	Takes                               float64
	Uneven                              bool

	encoded string                   // a payload of its own, in place of program and harness
	build   func(seed *int64) string // makes one
	open    bool                     // its run has no secret seed
}

// file is the program's name.
func (a attack) file() string {
	if a.Harness == "driver" || a.Harness == "cuda" {
		return a.Program + ".cu"
	}
	return a.Program + ".py"
}

func readManifest(t *testing.T) []attack {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(corpus, "manifest.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var list []attack
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&list); err != nil {
		t.Fatal(err)
	}
	for i := range list {
		a := &list[i]
		if a.Program == "" {
			a.Program = a.Name
		}
		if a.Mode == "" {
			a.Mode = schema.ModeTest
		}
		if a.Limit == 0 {
			a.Limit = 10
		}
	}
	for _, a := range list[:len(list):len(list)] {
		if a.Seed {
			a.Name, a.Secret, a.Forbidden = a.Name+"_secret", true, nil // it could not say them
			list = append(list, a)
		}
	}
	return list
}

func TestManifestIsWhole(t *testing.T) {
	used, names := map[string]bool{}, map[string]bool{}
	for _, a := range readManifest(t) {
		used[a.file()], used[a.Then+".py"] = true, true
		if names[a.Name] || a.Tries == "" || len(a.Outcomes) == 0 {
			t.Errorf("entry %q: a name of its own, tries and outcomes are wanted", a.Name)
		}
		names[a.Name] = true
		if a.Secret && (len(a.Forbidden) > 0 || len(a.Leaks) > 0) {
			t.Errorf("%s: nothing that it says is told in a secret run: no text can be forbidden, or leak", a.Name)
		}
		if slices.Contains(a.Outcomes, schema.OutcomePassed) && !a.Control && a.Open == "" && a.Takes == 0 {
			t.Errorf("%s: an attack may not pass unless it is open, or takes its time", a.Name)
		}
		for _, name := range a.Outcomes {
			if schema.NewOutcome(name, "").Name != name {
				t.Errorf("%s: no outcome is called %q", a.Name, name)
			}
		}
		for _, need := range a.Needs {
			if !slices.ContainsFunc(schema.Guards(), func(g schema.Guard) bool { return g.Name == need }) {
				t.Errorf("%s: no guard is called %q", a.Name, need)
			}
		}
	}
	files, _ := filepath.Glob(filepath.Join(corpus, "programs", "*"))
	for _, file := range files {
		if !used[filepath.Base(file)] {
			t.Errorf("%s is in no entry", file)
		}
	}
}

// TestAttacks runs the quick programs of every family. As the second user it runs
// those that a guard of the sandbox must stop, because guards depend on the user.
// TestSlowAttacks runs all programs as both users.
func TestAttacks(t *testing.T) {
	testAttacks(t, func(u user, a attack) bool { return a.Quick && !(u.second && len(a.Needs) == 0) })
}

func TestSlowAttacks(t *testing.T) {
	testenv.NeedSlow(t)
	testAttacks(t, func(user, attack) bool { return true })
}

// testAttacks runs the real kbrun against programs, as root and as an ordinary
// user if the test may. It checks for the right outcome in time, a log and a result
// that can be trusted, and flat memory, and that no process survives, no file
// remains and no secret is printed.
func testAttacks(t *testing.T, include func(user, attack) bool) {
	r := newRange(t)
	for _, u := range r.users {
		held := r.probe(t, u)
		for _, a := range readManifest(t) {
			if u.second && !a.Both || !include(u, a) {
				continue
			}
			t.Run(u.name+"/"+a.Name, func(t *testing.T) {
				t.Parallel()
				if _, err := os.Stat("/usr/bin/c++"); filepath.Ext(a.file()) == ".cu" && err != nil {
					t.Skip("no c++ to stand in for nvcc")
				}
				if missing := without(a.Needs, held); len(missing) > 0 {
					r.record(row{u.name, a, "not tried", "NEEDS " + strings.Join(missing, ", ")})
					t.Skipf("the sandbox here lacks %q", missing)
				}
				r.try(t, u, a)
			})
		}
	}
}

// TestHostilePayloads runs kbrun on payloads that are attacks themselves.
func TestHostilePayloads(t *testing.T) {
	r := newRange(t)
	good, err := schema.DecodePayload(r.payload(t, attack{Program: "honest", Harness: "worker", Mode: schema.ModeTest, Limit: 20}, nil, ""))
	must(t, err)
	// named is the honest payload with one more file.
	named := func(name string) string {
		return packed(strings.Replace(good.JSON(), `"sources": {`, `"sources": {"`+name+`": "import os", `, 1))
	}
	bad, fine := schema.OutcomeBadPayload, schema.OutcomePassed
	for _, tt := range []struct{ name, tries, encoded, outcome string }{
		{"zlib_bomb", "inflates to 64 MiB", packed(strings.Repeat(" ", 64<<20)), bad},
		{"zlib_twice", "is compressed twice", packed(packed(good.JSON())), bad},
		{"zip", "is a zip", base64.StdEncoding.EncodeToString([]byte("PK\x03\x04" + strings.Repeat("\x00", 60))), bad},
		{"cut_short", "ends in the middle", packed(good.JSON())[:400], bad},
		{"deep_json", "nests 200,000 lists", packed(`{"sources": ` + strings.Repeat("[", 200000)), bad},
		{"long_number", "a seed of 100,000 digits", packed(strings.Replace(good.JSON(), `"seed": null`, `"seed": `+strings.Repeat("9", 100000), 1)), bad},
		{"absolute", "names a file /tmp/…", named("/tmp/kbattack"), bad},
		{"dot_dot", "names a file ../…", named("../kbattack"), bad},
		{"directory", "names a file in a directory", named("a/../../kbattack"), bad},
		{"dots", "names a file ..", named(".."), bad},
		{"no_name", "names a file by nothing", named(""), bad},
		{"nul", "names a file with NUL", named(`a\u0000b`), bad},
		{"option", "names a file like an option", named("-c"), bad},
		{"long_name", "names a file with 300 characters", named(strings.Repeat("n", 300)), bad},
		{"twice", "names a file twice", named("submission.py"), fine},
		{"case", "names a file in capitals", named("SUBMISSION.PY"), fine},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r.try(t, r.users[0], attack{Name: "payload_" + tt.name, Tries: tt.tries, encoded: tt.encoded, Control: tt.outcome == fine, Outcomes: []string{tt.outcome}})
		})
	}
}

// packed is text as a payload travels.
func packed(text string) string {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func without(needs, held []string) (missing []string) {
	for _, n := range needs {
		if !slices.Contains(held, n) {
			missing = append(missing, n)
		}
	}
	return missing
}

// try makes one attack and holds what came of it against the manifest.
func (r *shootingRange) try(t *testing.T, u user, a attack) {
	t.Helper()
	s := r.shot(t, u, a)
	for again := 0; (a.Harness == "example" || a.Harness == "cuda") && a.Mode != schema.ModeTest && again < 3 && s.result(t).Outcome.Name == schema.OutcomeAmbiguous; again++ {
		t.Logf("the machine is too busy to measure: %s", s.result(t).Outcome.Text)
		if again == 2 && a.Untimed == "" { // once more, without times
			a.Mode = schema.ModeTest
		}
		s = r.shot(t, u, a)
	}
	what := "no result"
	if !t.Run("judged", func(t *testing.T) { what = s.judge(t, a) }) {
		r.record(row{u.name, a, what, "FAILED"})
		return
	}
	verdict := "held"
	switch {
	case a.Control:
		verdict = "passed"
	case a.Open != "":
		verdict = "OPEN"
	}
	if a.Then != "" {
		next := attack{Name: a.Name + "-then", Program: a.Then, Harness: a.Harness, Mode: a.Mode, Limit: a.Limit, Outcomes: []string{schema.OutcomePassed}}
		after := r.again(t, u, next, &shot{mark: s.mark, dir: s.dir, uid: s.uid, canaries: map[string]string{}})
		if !t.Run("next", func(t *testing.T) { after.judge(t, next) }) {
			verdict = "FAILED"
		}
	}
	r.record(row{u.name, a, what, verdict})
}

var logLine = regexp.MustCompile(`^(--- Evaluating attack-1: (py|cu), mode [a-z]+, \d+ tests, \d+ benchmarks|--- Phase [a-z]+|\+\+\+ Verdict: [a-z-]+)$`)

// judge says what happened, in few words, and fails for everything that
// should not have.
func (s *shot) judge(t testing.TB, a attack) string {
	t.Helper()
	result := s.result(t)
	data, _ := os.ReadFile(filepath.Join(s.dir, "out", "result.json"))
	annotation, _ := os.ReadFile(filepath.Join(s.dir, "calls", "annotate"))
	if !slices.Contains(a.Outcomes, result.Outcome.Name) || s.status != result.Outcome.ExitStatus() || result.RunID != "attack-1" {
		t.Errorf("outcome %+v, status %d, want %q\n%s%s", result.Outcome, s.status, a.Outcomes, s.stdout, s.stderr)
	}
	for _, run := range result.Runs {
		if run.Name == schema.ModeTest && a.Untimed == schema.OutcomePassed {
			continue // its answers were right when they were read, and it claims no time
		}
		if passed := run.Run.Passed && run.Run.Success; passed && a.build == nil && !slices.Contains(a.Outcomes, schema.OutcomePassed) {
			t.Errorf("run %s passed", run.Name)
		}
	}
	if a.Untimed == schema.OutcomePassed && len(result.Measurements) > 0 {
		t.Errorf("measured %v", result.Measurements)
	}
	if a.Takes > 0 && a.Mode != schema.ModeTest && len(result.Measurements) == 0 {
		t.Error("nothing was measured")
	}
	for _, m := range result.Measurements {
		fastest := (m.Interval[0] + m.Interval[1]) / 2 // the mean, where samples are withheld
		if len(m.Samples) > 0 {
			fastest = slices.Min(m.Samples)
		}
		if !a.Uneven && fastest < a.Takes {
			t.Errorf("%s: a call took %.0f ns, its work takes %.0f", m.Phase, fastest, a.Takes)
		}
	}
	shared := a.Harness == "inline" || a.Harness == "driver"
	if a.build != nil {
		// one of them raises what brings it into the judge
	} else if result.SharedJudge && !shared || !result.SharedJudge && shared && judged(result) {
		t.Errorf("shared judge: %v, with the harness %s", result.SharedJudge, a.Harness)
	}
	if s.took > hangLimit-5*time.Second {
		t.Errorf("took %s", s.took)
	}
	if len(s.survivors) > 0 || len(s.left) > 0 || len(s.reached) > 0 {
		t.Errorf("survivors %q, files left %q, reached %q", s.survivors, s.left, s.reached)
	}
	everything := string(data) + s.stdout + s.stderr + string(annotation)
	for text, kind := range s.canaries {
		if strings.Contains(everything, text) != slices.Contains(a.Leaks, kind) {
			t.Errorf("the %s is told: %v", kind, strings.Contains(everything, text))
		}
	}
	for _, text := range a.Forbidden {
		if strings.Contains(everything, text) {
			t.Errorf("the result says %q", text)
		}
	}
	for _, line := range strings.Split(strings.TrimSuffix(s.stdout, "\n"), "\n") {
		if !logLine.MatchString(line) && !strings.HasPrefix(line, "  ") || strings.ContainsFunc(line, hidden) {
			t.Errorf("log line %q", line)
		}
	}
	s.checkAnnotation(t, string(annotation))
	s.checkTold(t, a, result)
	if testenv.Slow() && s.peakKiB > 64<<10 { // a busy machine delays the reader of a report
		t.Errorf("kbrun had %d MiB", s.peakKiB>>10)
	}
	return fmt.Sprintf("%s in %.1f s%s", result.Outcome.Name, s.took.Seconds(), checkGain(t, result, a.Takes, a.Uneven))
}

// checkGain compares the figures of a result with the nanoseconds that a call's work
// takes. They may be less by what docs/harness.md leaves to a liar: half a microsecond,
// or the resolution if that is less, and one per cent. If the calls are uneven, the mean
// of a few may also be less by chance, twice the interval's half. It returns the lowest
// figure and the work in words.
func checkGain(t testing.TB, result *schema.Result, takes float64, uneven bool) string {
	t.Helper()
	if takes == 0 || len(result.Measurements) == 0 {
		return ""
	}
	lowest, words := math.Inf(1), ""
	for _, m := range result.Measurements {
		figure, chance := (m.Interval[0]+m.Interval[1])/2, 0.0
		if uneven {
			chance = m.Interval[1] - m.Interval[0]
		}
		if gain := takes - figure; gain > takes/100+min(m.Resolution, 500)+chance {
			t.Errorf("%s: the figure is %.0f ns (interval %.0f), the work takes %.0f: a gain of %.0f ns", m.Phase, figure, m.Interval, takes, gain)
		}
		if figure > lowest {
			continue
		}
		lowest = figure
		words = fmt.Sprintf(", %.3f ms of %g ms", figure/1e6, takes/1e6)
		if uneven {
			words += fmt.Sprintf(" ± %.3f", chance/2/1e6)
		}
		if figure < takes {
			words += fmt.Sprintf(", a gain of %.3f ms", (takes-figure)/1e6)
		}
	}
	return words
}

// annotationLine matches a line of an annotation behind its head: an item of
// words of ours, with at most one code span of foreign text at its end.
var annotationLine = regexp.MustCompile("^(|- [^`<>\\[\\]*_&|#\\\\]*(`[^`]+`)?)$")

// checkAnnotation holds that nothing foreign stands in an annotation outside of
// a code span, and that it tells what to do.
func (s *shot) checkAnnotation(t testing.TB, annotation string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(annotation, "\n"), "\n") // the first is the agent's command
	if len(lines) < 2 || strings.Count(lines[1], "`") != 4 || !strings.HasPrefix(lines[1], "**") || len(annotation) > schema.MaxAnnotation {
		t.Errorf("annotation %q", annotation)
		return
	}
	for _, line := range lines {
		if strings.ContainsFunc(line, hidden) {
			t.Errorf("annotation line %q", line)
		}
	}
	for _, line := range lines[2:] {
		if !annotationLine.MatchString(strings.ReplaceAll(line, "custom_kernel", "")) {
			t.Errorf("annotation line %q", line)
		}
	}
	if told := strings.Count(annotation, "\n- what you can do: "); told != strings.Count(s.stdout, "\n  what you can do: ") || (told == 1) == strings.HasPrefix(lines[1], "**passed**") {
		t.Errorf("what can be done is told %d times in the annotation\n%s\nand in the log\n%s", told, annotation, s.stdout)
	}
}

// checkTold holds what is explained of a run with a secret seed: numbers of
// cases. And a pass is marked when it is the submission's
// own word.
func (s *shot) checkTold(t testing.TB, a attack, result *schema.Result) {
	t.Helper()
	if x := result.Explanation; x != nil && s.seeded && result.Outcome.Name != schema.OutcomeCompileFailed {
		if x.Withheld == "" || x.File != "" || x.Line != 0 || x.Source != "" || x.Error != "" || x.Traceback != nil || x.Printed != "" || x.Expected != "" || x.Got != "" {
			t.Errorf("with a secret seed, this is explained: %+v", x)
		}
	}
	shared := a.Harness == "inline" || a.Harness == "driver"
	passed := slices.ContainsFunc(result.Runs, func(run schema.Run) bool { return run.Run.Passed })
	if a.build == nil && result.SelfChecked != (shared && passed) {
		t.Errorf("self-checked: %v, with the harness %s, passed %v", result.SelfChecked, a.Harness, passed)
	}
	if told := strings.Contains(s.stdout, schema.SelfCheckedText); told != (result.SelfChecked && result.Outcome.Name == schema.OutcomePassed) {
		t.Errorf("the log says that a pass is self-checked: %v", told)
	}
}

// judged reports whether a harness reached a verdict.
func judged(r *schema.Result) bool {
	return slices.ContainsFunc(r.Runs, func(run schema.Run) bool { return run.Run.Success })
}

// hidden holds for characters that a log should not be made to show.
func hidden(c rune) bool {
	return c < ' ' || c == 0x7f || 0x80 <= c && c < 0xa0 || c == 0x202e || c == 0x200b
}

func (r *shootingRange) record(line row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, line)
}

func (r *shootingRange) print() {
	if !*table {
		return
	}
	slices.SortStableFunc(r.rows, func(a, b row) int { return strings.Compare(a.user, b.user) * -1 })
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "AS\tATTACK\tTRIES\tWHAT HAPPENED\tVERDICT")
	for _, line := range r.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", line.user, line.attack.Name, line.attack.Tries, line.what, line.verdict)
	}
	w.Flush()
}
