package runner_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/schema"
)

// A usualAttack is one entry of the manifest of attacks on harnesses.
type usualAttack struct {
	Name, Tries, Mode           string
	Legacy, Isolated, Forbidden []string
	Needs                       []string
	Takes                       float64
	Uneven, Alone               bool
	Check                       string
	Size                        int
	Torch, Secret               bool
	Control, Both, Quick        bool

	imports string // put before the task's reference
}

const usual = corpus + "/usual"

// channelImport is the line that lib/channel.py takes the place of.
const channelImport = "from channel import *\n"

func readUsual(t *testing.T) []usualAttack {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(usual, "manifest.yml"))
	must(t, err)
	var list []usualAttack
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	must(t, decoder.Decode(&list))
	for i := range list {
		if list[i].Mode == "" {
			list[i].Mode = schema.ModeTest
		}
	}
	return list
}

func TestUsualManifestIsWhole(t *testing.T) {
	used := map[string]bool{}
	for _, a := range readUsual(t) {
		program, err := os.ReadFile(filepath.Join(usual, "programs", a.Name+".py"))
		must(t, err)
		if used[a.Name] || a.Tries == "" || (len(a.Legacy) == 0) != bytes.Contains(program, []byte(channelImport)) || len(a.Isolated) == 0 {
			t.Errorf("entry %q: a name of its own, tries and both columns are wanted, or one if it uses the channel", a.Name)
		}
		used[a.Name] = true
		if slices.Contains(a.Isolated, schema.OutcomePassed) && !a.Control && a.Takes == 0 {
			t.Errorf("%s: an attack may not pass the isolated harness", a.Name)
		}
		for _, name := range slices.Concat(a.Legacy, a.Isolated) {
			if schema.NewOutcome(name, "").Name != name {
				t.Errorf("%s: no outcome is called %q", a.Name, name)
			}
		}
	}
	files, _ := filepath.Glob(filepath.Join(usual, "programs", "*"))
	for _, file := range files {
		if !used[strings.TrimSuffix(filepath.Base(file), ".py")] {
			t.Errorf("%s is in no entry", file)
		}
	}
}

// TestAttacksOnHarnesses runs the quick programs under the isolated harness, as the
// second user those that may not print a text. Only honest programs pass, in no less
// than the time of their work.
func TestAttacksOnHarnesses(t *testing.T) {
	testAttacksOnHarnesses(t, false, quickUsual)
}

func quickUsual(u user, a usualAttack) bool { return a.Quick && !(u.second && len(a.Forbidden) == 0) }

// TestSlowAttacksOnHarnesses runs all programs, also under the harness that checks
// itself. The manifest says what to expect of that one.
func TestSlowAttacksOnHarnesses(t *testing.T) {
	testenv.NeedSlow(t)
	testAttacksOnHarnesses(t, true, func(user, usualAttack) bool { return true })
}

// TestSlowAttacksOnFreshInterpreters checks the same if the interpreter cannot be
// forked. What differs there is how a phase starts, so the quick programs are enough.
func TestSlowAttacksOnFreshInterpreters(t *testing.T) {
	testenv.NeedSlow(t)
	testAttacksOnHarnesses(t, false, quickUsual, "--no-preload")
}

func testAttacksOnHarnesses(t *testing.T, both bool, include func(user, usualAttack) bool, flags ...string) {
	r := newRange(t)
	for i := range r.users {
		r.users[i].flags = append(r.users[i].flags, flags...)
	}
	torch := exec.Command("/usr/bin/python3", "-c", "import torch").Run() == nil
	for _, u := range r.users {
		held := r.probe(t, u)
		for _, a := range readUsual(t) {
			if u.second && !a.Both || !include(u, a) {
				continue
			}
			t.Run(u.name+"/"+a.Name, func(t *testing.T) {
				if !a.Alone {
					t.Parallel()
				}
				if a.Torch && !torch {
					r.record(row{u.name, attack{Name: a.Name, Tries: a.Tries}, "not tried", "NEEDS torch"})
					t.Skip("/usr/bin/python3 has no torch")
				}
				if missing := without(a.Needs, held); len(missing) > 0 {
					r.record(row{u.name, attack{Name: a.Name, Tries: a.Tries}, "not tried", "NEEDS " + strings.Join(missing, ", ")})
					t.Skipf("NOT RUN: the sandbox here lacks %q", missing)
				}
				r.tryUsual(t, u, a, both && len(a.Legacy) > 0)
			})
		}
	}
}

// tryUsual makes one attack on the isolated harness, or on both.
func (r *shootingRange) tryUsual(t *testing.T, u user, a usualAttack, both bool) {
	legacy, isolated, gain := "not tried", "FAILED", ""
	// A machine too busy to measure may be asked again, also if chance alone may explain
	// any figure.
	unclear := func(r *schema.Result) bool {
		return r.Outcome.Name == schema.OutcomeAmbiguous || a.Uneven && slices.ContainsFunc(r.Measurements, func(m schema.Measurement) bool {
			return m.Interval[1]-m.Interval[0] > a.Takes
		})
	}
	vague := false
	if both {
		legacy = "FAILED"
		t.Run("legacy", func(t *testing.T) {
			result := r.shotUsual(t, u, a, schema.HarnessLegacy)
			legacy = result.Outcome.Name
			if !slices.Contains(a.Legacy, legacy) {
				t.Errorf("outcome %+v, want one of %q", result.Outcome, a.Legacy)
			}
		})
	}
	held := t.Run("isolated", func(t *testing.T) {
		result := r.shotUsual(t, u, a, schema.HarnessIsolated)
		for range 2 {
			if unclear(result) {
				t.Log(result.Outcome.Text)
				result = r.shotUsual(t, u, a, schema.HarnessIsolated)
			}
		}
		vague = unclear(result)
		isolated = result.Outcome.Name
		gain = checkGain(t, result, a.Takes, a.Uneven)
		if isolated != schema.OutcomeAmbiguous && !slices.Contains(a.Isolated, isolated) {
			t.Errorf("outcome %+v, want one of %q", result.Outcome, a.Isolated)
		}
		if result.Harness == nil || result.Harness.Name != schema.HarnessIsolated || result.SharedJudge || result.SelfChecked {
			t.Errorf("judged by %+v, shared %v, self-checked %v", result.Harness, result.SharedJudge, result.SelfChecked)
		}
		if isolated == schema.OutcomePassed && a.Takes > 0 && a.Mode != schema.ModeTest && gain == "" {
			t.Error("nothing was measured")
		}
		for _, m := range result.Measurements {
			// A single call may be a quarter too short, by what a floor that was measured
			// beside other load takes too much. With a secret seed there are no samples.
			if !a.Uneven && len(m.Samples) > 0 && slices.Min(m.Samples) < a.Takes*3/4 {
				t.Errorf("%s: a call took %.0f ns, its work takes %.0f", m.Phase, slices.Min(m.Samples), a.Takes)
			}
		}
	})
	verdict := "held"
	switch {
	case !held || t.Failed():
		verdict = "FAILED"
	case vague:
		verdict = "ambiguous"
	case a.Control:
		verdict = "passed"
	}
	r.record(row{u.name, attack{Name: a.Name, Tries: a.Tries}, "legacy " + legacy + ", isolated " + isolated + gain, verdict})
}

// shotUsual runs one program under one harness, and checks what holds for all.
func (r *shootingRange) shotUsual(t testing.TB, u user, a usualAttack, harness string) *schema.Result {
	t.Helper()
	outcomes := a.Isolated
	if harness == schema.HarnessLegacy {
		outcomes = a.Legacy
	}
	shot := attack{
		Name: a.Name + "-" + harness, Tries: a.Tries, Harness: "usual", Mode: a.Mode, Outcomes: append(slices.Clone(outcomes), schema.OutcomeAmbiguous), Limit: 10, open: !a.Secret,
		build: func(seed *int64) string {
			if !a.Secret {
				seed = nil
			}
			return usualPayload(t, a, harness, seed)
		},
	}
	if harness == schema.HarnessIsolated {
		shot.Forbidden = a.Forbidden
	}
	s := r.shot(t, u, shot)
	s.judge(t, shot)
	return s.result(t)
}

// usualPayload is the task with the program in it.
func usualPayload(t testing.TB, a usualAttack, harness string, seed *int64) string {
	t.Helper()
	file := func(parts ...string) string {
		data, err := os.ReadFile(filepath.Join(append([]string{usual}, parts...)...))
		must(t, err)
		return string(data)
	}
	dir, limit := "task", schema.Seconds(20)
	if a.Torch {
		dir, limit = "torch_task", schema.Seconds(60) // a busy machine may take 20 to load torch
	}
	integer := func(name string, n int64) schema.Param { return schema.Param{Name: name, Value: schema.IntValue(n)} }
	reference, size := a.imports+file(dir, "reference.py"), int64(3000)
	if a.Check != "" {
		reference += "\n\ndef check_implementation(data, output):\n    return bool(" + a.Check + "), \"another answer\"\n"
	}
	if a.Size > 0 {
		size = int64(a.Size)
	}
	p := &schema.Payload{
		Main: "eval.py", Lang: schema.LangPython, Mode: a.Mode, RankingBy: schema.RankGeom, Seed: seed, Extension: schema.Extension{Harness: harness},
		Sources: schema.Files{
			{Name: "submission.py", Text: strings.Replace(file("programs", a.Name+".py"), channelImport, file("lib", "channel.py"), 1)}, {Name: "task.py", Text: file(dir, "task.py")},
			{Name: "utils.py", Text: file(dir, "utils.py")}, {Name: "reference.py", Text: reference}, {Name: "eval.py", Text: file("task", "eval.py")},
		},
		Tests:       []schema.Case{{integer("n", 300), integer("seed", 11)}, {integer("n", 400), integer("seed", 12)}},
		Benchmarks:  []schema.Case{{integer("n", size), integer("seed", 13)}},
		TestTimeout: limit, BenchmarkTimeout: schema.Seconds(60), RankedTimeout: schema.Seconds(60),
	}
	encoded, err := p.Encode()
	must(t, err)
	return encoded
}
