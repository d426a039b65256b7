package examples

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner"
	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
	taskfile "github.com/gpu-mode/kbgen/schema/task"
)

// With this argument the test's program is a kbrun: a payload comes on stdin,
// and its result goes to stdout. A kbrun judges one payload and ends.
const evaluateArg = "evaluate-payload"

func TestMain(m *testing.M) {
	sandbox.Main()
	if len(os.Args) == 2 && os.Args[1] == evaluateArg {
		if err := evaluateStdin(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func evaluateStdin() error {
	encoded, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	p, err := schema.DecodePayload(string(encoded))
	if err != nil {
		return err
	}
	result, err := runner.Evaluate(context.Background(), runner.Job{Payload: p, Environ: os.Environ()}).Encode()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(result)
	return err
}

// evaluate has a kbrun judge a payload.
func evaluate(t *testing.T, p *schema.Payload) *schema.Result {
	t.Helper()
	encoded, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, evaluateArg)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(encoded), &stdout, &stderr
	path := ""
	if p.Lang == schema.LangCUDA {
		path = needNvcc(t)
	} else {
		path = testenv.PythonPath(t)
	}
	cmd.Env = append(os.Environ(), "PATH="+path, "TMPDIR="+t.TempDir())
	if err := cmd.Run(); err != nil {
		t.Fatalf("kbrun: %v: %s", err, stderr.String())
	}
	r, err := schema.DecodeResult(stdout.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if r.Harness == nil || r.Harness.Name != schema.HarnessIsolated || r.SharedJudge || r.SelfChecked {
		t.Fatalf("judged by %+v, shared %v, self-checked %v, want the isolated harness\noutcome %+v", r.Harness, r.SharedJudge, r.SelfChecked, r.Outcome)
	}
	for _, run := range r.Runs {
		for _, e := range run.Run.Result {
			if !reportKey.MatchString(e.Key) {
				t.Errorf("%s: the report has the key %q, want only known ones", run.Name, e.Key)
			}
		}
	}
	return r
}

// measured is evaluate for a payload that is timed: again when the machine was
// too busy to say. A result that stays ambiguous is none.
func measured(t *testing.T, p *schema.Payload) *schema.Result {
	t.Helper()
	r := evaluate(t, p)
	for range 2 {
		if r.Outcome.Name != schema.OutcomeAmbiguous {
			break
		}
		t.Logf("the machine is too busy to measure: %s", r.Outcome.Text)
		r = evaluate(t, p)
	}
	return r
}

// payload is a task with a submission's text.
func payload(t *testing.T, e Example, mode, submission string, seed *int64) *schema.Payload {
	t.Helper()
	loaded, err := taskfile.Load(FS(), e.Dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := loaded.Payload(schema.File{Name: "mine." + e.Lang, Text: submission}, mode, nil, seed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// testCase makes a case of names and integers: "n", 4, "seed", 1.
func testCase(t *testing.T, pairs ...any) (c schema.Case) {
	t.Helper()
	for i := 0; i+1 < len(pairs); i += 2 {
		value := schema.Value{}
		switch v := pairs[i+1].(type) {
		case int:
			value = schema.IntValue(int64(v))
		case string:
			value = schema.StringValue(v)
		default:
			t.Fatalf("a case's value: %v", v)
		}
		c = append(c, schema.Param{Name: pairs[i].(string), Value: value})
	}
	return c
}

func wantOutcome(t *testing.T, r *schema.Result, name, text string) {
	t.Helper()
	if r.Outcome.Name != name || !strings.Contains(r.Outcome.Text, text) {
		t.Errorf("got outcome %s: %q, want %s with %q", r.Outcome.Name, r.Outcome.Text, name, text)
	}
}

// reported is a value of the phase's report, "" when there is none.
func reported(r *schema.Result, phase, key string) string {
	run := r.Runs.Get(phase)
	if run == nil {
		return ""
	}
	value, _ := run.Run.Result.Get(key)
	return value
}

// python runs a program with the argument dir and returns what it printed.
func python(t *testing.T, dir, program string) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing")
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-c", program, dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return string(out)
}

// folder writes the task's files into a new folder, without a submission.
func folder(t *testing.T, e Example) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"task.py", "reference.py"} {
		text, err := files.ReadFile(e.Dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
