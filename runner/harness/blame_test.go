package harness

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

// The outcome names the side that kept a job from its verdict: see docs/outcomes.md.
func TestBlame(t *testing.T) {
	const taken, answer = "\ndef ref_kernel(data):\n    return array('f', map(float.__add__, *data))\n", "check_implementation(data, output):\n    "
	const wrong = "def custom_kernel(data):\n    return data[0]\n"
	slow := func(body string) string {
		return strings.Replace(addReference, "    draw =", body+"    draw =", 1)
	}
	for _, tt := range []struct {
		name, reference, submission string
		task                        string // the TaskError's words; "" is the outcome of the submission
		outcome                     string
	}{
		{"a check that is always false", strings.Replace(addReference, answer, answer+"return False, 'no'\n    ", 1) + taken, right, "refuses the task's own answer", ""},
		{"a wrong answer", addReference + taken, wrong, "", schema.OutcomeWrong},
		{"a check that returns nothing", strings.Replace(addReference, answer, answer+"return\n    ", 1), right, "check_implementation returned None", ""},
		{"a check that raises SystemExit", strings.Replace(addReference, answer, answer+"raise SystemExit(3)\n    ", 1), right, "SystemExit", ""},
		{"a check that ends its process", strings.Replace(addReference, answer, answer+"import os; os._exit(3)\n    ", 1), right, "end the judge with status 3", ""},
		{"a check that crashes", strings.Replace(addReference, answer, answer+"import os; os.abort()\n    ", 1), right, "by signal 6", ""},
		{"inputs that are slow", slow("    import time; time.sleep(0.6)\n"), right, "generate_input and check_implementation took", ""},
		{"a kernel that is slow", addReference, "import time\n\ndef custom_kernel(data):\n    time.sleep(60)\n", "", schema.OutcomeTimeout},
	} {
		p := addPayload(tt.submission, ints("n", 4, "seed", 1), ints("n", 5, "seed", 2), ints("n", 6, "seed", 3))
		p.Sources[1].Text = tt.reference
		p.TestTimeout = schema.Seconds(2)
		s := mustOpen(t, "", p)
		planned := planOf(p, s)
		_, err := s.Phase(t.Context(), &planned)
		var broken *TaskError
		switch {
		case tt.task != "":
			if !errors.As(err, &broken) || !strings.Contains(err.Error(), tt.task) {
				t.Errorf("%s: got %v, want a TaskError with %q", tt.name, err, tt.task)
			}
		case err != nil:
			t.Errorf("%s: %v", tt.name, err)
		default:
			phase(t, s, schema.ModeTest, tt.submission, p).want(t, tt.outcome, "")
		}
	}
	// Without the task's modules the machine is at fault, and another machine may have them.
	p := addPayload(right, ints("n", 4, "seed", 1))
	p.Sources[1].Text = "import sys\nsys.modules['triton'] = None\nimport triton\n" + addReference
	var broken *TaskError
	if _, err := open(t, "", p); err == nil || errors.As(err, &broken) || !strings.Contains(err.Error(), "no module triton") {
		t.Errorf("without a module: got %v, want the machine's fault", err)
	}
}
