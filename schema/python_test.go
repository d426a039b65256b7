package schema

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"
)

// python runs a script with input on its stdin, and skips the test where there
// is no Python.
func python(t *testing.T, script string, input any) []string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed: nothing to compare with")
	}
	in, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-I", "-c", script)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python3: %v", err)
	}
	var lines []string
	if err := json.Unmarshal(out, &lines); err != nil {
		t.Fatal(err)
	}
	return lines
}

var values = []string{
	`128`, `-0`, `0`, `-7`, `123456789012345678901234567890`, `true`, `false`, `null`,
	`"bf16"`, `""`, `"it's"`, `"a\nb"`, `"é\u0001\u007f\u00ad\u2028🚀\\ \" '"`,
	`0.5`, `1.0`, `-0.0`, `0.0`, `1e-05`, `1e-4`, `0.00012345`, `9.999e-5`, `1e15`, `1e16`, `123456789012345680.0`, `9007199254740993.0`,
	`1e22`, `1e23`, `5e-324`, `1.7976931348623157e308`, `0.1`, `1E5`, `1e0`, `3.141592653589793`, `100000000000000000000.0`, `2.5e-7`,
	`[]`, `{}`, `[96, 128]`, `[true, null, 1.0, 1e-7, "a", "it's", "say \"x\"", "both ' and \"", "\t\n\r\\", "\u0000\u001b\u0085\u00a0\u00e9\u200b\ue000\u4e2d\ud83d\ude80"]`,
	`{"b": [1, {"a": "x"}], "a": null, "it's": 2.0}`, `[[1, 2], [3.5, []]]`,
}

func TestValueTextIsPythonsStr(t *testing.T) {
	want := python(t, `import json,sys; print(json.dumps([str(json.loads(v)) for v in json.load(sys.stdin)]))`, values)
	for i, v := range values {
		if got := mustValue(t, v).Text(); got != want[i] {
			t.Errorf("ParseValue(%s).Text() = %q, want Python's %q", v, got, want[i])
		}
	}
}

func TestValueJSONIsPythonsDumps(t *testing.T) {
	want := python(t, `import json,sys; print(json.dumps([json.dumps(json.loads(v)) for v in json.load(sys.stdin)]))`, values)
	for i, v := range values {
		if got := mustValue(t, v).JSON(); got != want[i] {
			t.Errorf("ParseValue(%s).JSON() = %s, want Python's %s", v, got, want[i])
		}
	}
}

func TestPayloadAgainstPython(t *testing.T) {
	p := pythonPayload(t)
	p.RankedTimeout = Seconds(7)
	encoded, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got := python(t, `
import base64, json, sys, zlib
text = zlib.decompress(base64.b64decode(json.load(sys.stdin))).decode("utf-8")
again = json.dumps(json.loads(text))
cases = "".join("; ".join(f"{k}: {v}" for k, v in c.items()) + "\n" for c in json.loads(text)["tests"])
print(json.dumps([text, again, base64.b64encode(zlib.compress(again.encode("utf-8"))).decode("ascii"), cases]))`, encoded)
	if got[0] != p.JSON() || got[1] != p.JSON() {
		t.Errorf("Python reads %s and writes %s, want %s", got[0], got[1], p.JSON())
	}
	back, err := DecodePayload(got[2])
	if err != nil {
		t.Fatal(err)
	}
	if back.JSON() != p.JSON() {
		t.Errorf("DecodePayload of Python's = %s, want %s", back.JSON(), p.JSON())
	}
	if want := CasesText(p.Tests, false); got[3] != want {
		t.Errorf("Python's cases text is %q, ours %q", got[3], want)
	}
}

func TestCasesText(t *testing.T) {
	cases := []Case{{{"size", IntValue(127)}, {"seed", IntValue(4242)}}, {{"size", IntValue(128)}}}
	for _, tt := range []struct {
		cases []Case
		last  bool
		want  string
	}{
		{cases, false, "size: 127; seed: 4242\nsize: 128\n"},
		{cases, true, "size: 128\n"},
		{nil, true, ""},
		{[]Case{nil}, false, "\n"},
	} {
		if got := CasesText(tt.cases, tt.last); got != tt.want {
			t.Errorf("CasesText(%v, %v) = %q, want %q", tt.cases, tt.last, got, tt.want)
		}
	}
}

func FuzzCaseText(f *testing.F) {
	for _, v := range values {
		f.Add("name", v)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		v, err := ParseValue(value)
		if err != nil {
			return
		}
		again, err := ParseValue(v.JSON())
		if err != nil || again != v || again.Text() != v.Text() {
			t.Fatalf("ParseValue(%q) = %q, again %q, %v", value, v.JSON(), again.JSON(), err)
		}
		if got, want := (Case{{name, v}}).Text(), name+": "+v.Text(); got != want {
			t.Fatalf("Text() = %q, want %q", got, want)
		}
	})
}
