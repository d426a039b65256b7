package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"strings"
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

// Two thousand values of every kind, the same in every run, are written as
// Python writes them: floats of all magnitudes and near the powers of ten where
// the notation changes, integers beyond 64 bits, text of all planes.
func TestRandomValuesArePythons(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var texts []string
	for range 2000 {
		texts = append(texts, randomValue(random, 0).JSON())
	}
	want := python(t, `
import json, sys
out = []
for text in json.load(sys.stdin):
    v = json.loads(text)
    out += [str(v), json.dumps(v)]
print(json.dumps(out))`, texts)
	for i, text := range texts {
		v := mustValue(t, text)
		if got := v.Text(); got != want[2*i] {
			t.Errorf("ParseValue(%.200s).Text() = %q, want Python's %q", text, got, want[2*i])
		}
		if got := v.JSON(); got != want[2*i+1] {
			t.Errorf("ParseValue(%.200s).JSON() = %s, want Python's %s", text, got, want[2*i+1])
		}
	}
}

func randomValue(r *rand.Rand, depth int) Value {
	kinds := 9
	if depth > 2 {
		kinds = 6
	}
	switch r.IntN(kinds) {
	case 0:
		return IntValue(int64(r.Uint64()))
	case 1:
		return BoolValue(r.IntN(2) == 0)
	case 2:
		return StringValue(randomText(r))
	case 3: // any bits
		f := math.Float64frombits(r.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return Value{}
		}
		v, _ := FloatValue(f)
		return v
	case 4: // around the changes of notation
		v, _ := FloatValue(math.Pow(10, float64(r.IntN(44)-22)) * (1 + float64(r.IntN(5)-2)*1e-15))
		return v
	case 5: // what people write
		v, _ := FloatValue(float64(r.IntN(1_000_000)) / 1000)
		return v
	case 6, 7:
		items := make([]Value, r.IntN(4))
		for i := range items {
			items[i] = randomValue(r, depth+1)
		}
		return ListValue(items)
	}
	var members []Param
	for i := range r.IntN(4) {
		members = append(members, Param{fmt.Sprint(i, randomText(r)), randomValue(r, depth+1)})
	}
	return ObjectValue(members)
}

// randomText leaves out characters that were assigned after the Unicode version
// of either side: which of them can be printed is no property of ours.
func randomText(r *rand.Rand) string {
	ranges := [][2]rune{{0, 0x24f}, {'a', 'z'}, {0x2000, 0x206f}, {0x4e00, 0x4fff}, {0xe000, 0xe0ff}, {0x1f600, 0x1f64f}, {0xffff, 0xffff}}
	var b strings.Builder
	for range r.IntN(12) {
		in := ranges[r.IntN(len(ranges))]
		b.WriteRune(in[0] + r.Int32N(in[1]-in[0]+1))
	}
	return b.String()
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
