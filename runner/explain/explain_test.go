package explain

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-mode/kbgen/schema"
)

var own = schema.Files{{Name: "submission.py", Text: "import torch\n\ndef custom_kernel(data):\n    a, b = data\n    return a @ b\n"}}

// What Python 3.11 writes of an exception that a worker raised and its parent
// raises again.
const remote = `loading
multiprocessing.pool.RemoteTraceback: 
"""
Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 125, in worker
    result = (True, func(*args, **kwds))
                    ^^^^^^^^^^^^^^^^^^^
  File "/tmp/kbrun-1/test/work/eval.py", line 120, in _run
    out = custom_kernel(data)
          ^^^^^^^^^^^^^^^^^^^
  File "/tmp/kbrun-1/test/work/submission.py", line 5, in custom_kernel
    return a @ b
           ~~^~~
ValueError: shapes differ
by two
"""

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/tmp/kbrun-1/test/work/eval.py", line 300, in <module>
    sys.exit(main())
             ^^^^^^
ValueError: shapes differ
by two
`

const syntax = `Traceback (most recent call last):
  File "/w/eval.py", line 3, in <module>
    from submission import custom_kernel
  File "/w/submission.py", line 3
    def custom_kernel(data:
                     ^
SyntaxError: '(' was never closed
`

func TestException(t *testing.T) {
	for _, tt := range []struct {
		name, stderr, outcome string
		want                  schema.Explanation
	}{
		{"a worker's exception", remote, schema.OutcomeException, schema.Explanation{
			File: "submission.py", Line: 5, Source: "return a @ b", Error: "ValueError: shapes differ by two",
			Traceback: []string{"submission.py:5 in custom_kernel: return a @ b"},
		}},
		{"a syntax error", syntax, schema.OutcomeSyntaxError, schema.Explanation{
			File: "submission.py", Line: 3, Source: "def custom_kernel(data):", Error: "SyntaxError: '(' was never closed",
			Traceback: []string{"submission.py:3: def custom_kernel(data):"},
		}},
		{"a module that is not there", "Traceback (most recent call last):\n  File \"submission.py\", line 1, in <module>\n    import aiter\nModuleNotFoundError: No module named 'aiter'\n",
			schema.OutcomeMissingModule, schema.Explanation{
				File: "submission.py", Line: 1, Source: "import torch", Error: "ModuleNotFoundError: No module named 'aiter'",
				Traceback: []string{"submission.py:1 in <module>: import torch"},
			}},
		{"memory", "Traceback (most recent call last):\n  File \"submission.py\", line 99, in k\ntorch.OutOfMemoryError: CUDA out of memory.\n", schema.OutcomeOutOfMemory, schema.Explanation{
			File: "submission.py", Line: 99, Error: "torch.OutOfMemoryError: CUDA out of memory.", Traceback: []string{"submission.py:99 in k"},
		}},
		{"nothing of his", "Traceback (most recent call last):\n  File \"/w/eval.py\", line 3, in <module>\n    x\nKeyboardInterrupt\n", schema.OutcomeException, schema.Explanation{Error: "KeyboardInterrupt"}},
	} {
		r, before, found := Traceback(tt.stderr)
		if !found || r.Outcome() != tt.outcome || before != "" && before != "loading" {
			t.Errorf("%s: found %v, outcome %q, before %q", tt.name, found, r.Outcome(), before)
		}
		if diff := cmp.Diff(&tt.want, Exception(r, own)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if _, before, found := Traceback("just words\n"); found || before != "just words\n" {
		t.Errorf("a traceback in %q", before)
	}
}

func TestCompared(t *testing.T) {
	for _, tt := range []struct{ message, expected, got string }{
		{"mismatch found! ERROR AT (0, 1): 0.5 0.25 ERROR AT (0, 2): 1 2", "0.25", "0.5 at (0, 1)"},
		{"Number of mismatched elements: 2\nERROR at 7: nan 1.0", "1.0", "nan at 7"},
		{"element 3: got 1, want 2", "2", "1"},
		{"expected torch.float16, but got torch.float32", "torch.float16", "torch.float32"},
		{"SIZE MISMATCH", "", ""},
		{"", "", ""},
	} {
		if expected, got := Compared(tt.message); expected != tt.expected || got != tt.got {
			t.Errorf("Compared(%q) = %q, %q, want %q, %q", tt.message, expected, got, tt.expected, tt.got)
		}
	}
}

func TestPrinted(t *testing.T) {
	if got := Printed("\x1b[2Jone\r\ntwo\n\n"); got != "one\ntwo" {
		t.Errorf("Printed = %q", got)
	}
	got := Printed(strings.Repeat("ä", schema.MaxPrinted) + "end")
	if !strings.HasPrefix(got, "…ä") || !strings.HasSuffix(got, "äend") || utf8.RuneCountInString(got) != schema.MaxPrinted {
		t.Errorf("Printed of too much has %d characters: %.20q", utf8.RuneCountInString(got), got)
	}
	if all := strings.Repeat("ä", schema.MaxPrinted); Printed(all) != all {
		t.Error("what just fits is cut")
	}
}

func TestNotRun(t *testing.T) {
	if got := NotRun("test", 1, 3, "why"); !cmp.Equal(got, []schema.NotRun{{Case: "test.1", Why: "why"}, {Case: "test.2", Why: "why"}}) {
		t.Errorf("NotRun = %+v", got)
	}
	got := NotRun("test", 2, 1000, "why")
	if last := got[len(got)-1]; len(got) != maxNotRun+1 || last.Case != "test.102 to test.999" {
		t.Errorf("NotRun of many: %d, the last %+v", len(got), last)
	}
	if x := Withhold(&schema.Explanation{Error: "secret", Printed: "secret", NotRun: got}); x.Error != "" || x.Printed != "" || x.Withheld == "" || len(x.NotRun) != len(got) {
		t.Errorf("Withhold = %+v", x)
	}
	if x := Withhold(nil); x.Withheld == "" {
		t.Errorf("Withhold(nil) = %+v", x)
	}
}

// Whatever a program writes, what is made of it is bounded and moves no cursor.
func FuzzTraceback(f *testing.F) {
	f.Add(remote)
	f.Add(syntax)
	f.Add("Traceback (most recent call last):\n" + strings.Repeat("  File \"submission.py\", line 3, in \x1b[2J`<b>\n", 500) + "A.b: \x00\u202e\n")
	f.Add("  File \"submission.py\", line 999999999\nE\n")
	f.Fuzz(func(t *testing.T, stderr string) {
		r, _, found := Traceback(stderr)
		if !found {
			return
		}
		x := Exception(r, own)
		x.Printed, x.Expected = Printed(stderr), ""
		x.Expected, x.Got = Compared(stderr)
		if len(x.Traceback) > schema.MaxFrames || utf8.RuneCountInString(x.Printed) > schema.MaxPrinted {
			t.Errorf("%d frames, %d printed", len(x.Traceback), len(x.Printed))
		}
		for _, s := range append(x.Traceback, x.File, x.Source, x.Error, x.Expected, x.Got) {
			if utf8.RuneCountInString(s) > schema.MaxExplained || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
				t.Errorf("%q is too long, or not printable", s)
			}
		}
		if r.Outcome() == "" || fmt.Sprint(r) == "" {
			t.Error("no outcome")
		}
	})
}
