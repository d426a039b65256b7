package schema

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var compare = cmp.AllowUnexported(Value{}, Timeout{})

func mustValue(t testing.TB, json string) Value {
	t.Helper()
	v, err := ParseValue(json)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func pythonPayload(t testing.TB) *Payload {
	seed := int64(1190482231)
	return &Payload{
		Main:    "run.py",
		Sources: Files{{"submission.py", "def kernel(x):\n    return x  # é 🚀 \" \\ \x7f\n"}, {"run.py", "pass\n"}, {"a.py", ""}},
		Lang:    LangPython, Arch: new("90a"), Mode: ModeLeaderboard,
		Benchmarks:  []Case{{{"rows", IntValue(4096)}, {"f", mustValue(t, "1e-5")}, {"big", mustValue(t, "123456789012345678901234567890")}}},
		Tests:       []Case{{{"z", BoolValue(true)}, {"a", Value{}}, {"m", ListValue([]Value{IntValue(96), StringValue("x")})}, {"o", ObjectValue([]Param{{"k", IntValue(1)}})}}},
		TestTimeout: Seconds(120), BenchmarkTimeout: NoLimit(), RankedTimeout: Seconds(0.5),
		RankingBy: RankGeom, Seed: &seed,
	}
}

func cudaPayload() *Payload {
	return &Payload{
		Sources: Files{{"driver.cu", "int main(){}"}, {"submission.cu", ""}}, Headers: Files{{"shapes.h", "#pragma once"}},
		Defines: []Define{{"TILE", new("64")}, {"FAST", nil}}, CompileFlags: []string{"-O1"}, IncludeDirs: []string{"/tmp"}, Libraries: []string{"m"},
		Lang: LangCUDA, Mode: ModeTest, RankingBy: RankLast, MultiGPU: true,
	}
}

func TestPayloadRoundTrip(t *testing.T) {
	for name, p := range map[string]*Payload{"py": pythonPayload(t), "cu": cudaPayload()} {
		encoded, err := p.Encode()
		if err != nil {
			t.Fatalf("%s: Encode: %v", name, err)
		}
		got, err := DecodePayload(" " + encoded[:7] + "\r\n\t" + encoded[7:] + "\n")
		if err != nil {
			t.Fatalf("%s: DecodePayload: %v", name, err)
		}
		if diff := cmp.Diff(p, got, compare); diff != "" {
			t.Errorf("%s: decode(encode(p)) (-want +got):\n%s", name, diff)
		}
	}
}

func TestPayloadJSONIsKernelbots(t *testing.T) {
	p := &Payload{
		Main: "run.py", Sources: Files{{"run.py", "é\n"}}, Lang: LangPython, Mode: ModeTest,
		Tests: []Case{{{"rows", IntValue(16)}, {"seed", IntValue(3)}}}, TestTimeout: Seconds(1), BenchmarkTimeout: Seconds(2), RankedTimeout: NoLimit(),
	}
	want := `{"main": "run.py", "sources": {"run.py": "\u00e9\n"}, "lang": "py", "arch": null, "benchmarks": [], ` +
		`"tests": [{"rows": 16, "seed": 3}], "mode": "test", "test_timeout": 1, "benchmark_timeout": 2, "ranked_timeout": null, ` +
		`"ranking_by": "last", "seed": null, "multi_gpu": false}`
	if got := p.JSON(); got != want {
		t.Errorf("JSON() = %s\nwant     %s", got, want)
	}
	got := cudaPayload().JSON()
	if prefix := `{"sources": {"driver.cu": "int main(){}", "submission.cu": ""}, "headers": {"shapes.h": "#pragma once"}, "defines": {"TILE": "64", "FAST": null}, "compile_flags": ["-O1"], "include_dirs": ["/tmp"], "libraries": ["m"], "lang": "cu", `; !strings.HasPrefix(got, prefix) {
		t.Errorf("JSON() = %s\nwant prefix %s", got, prefix)
	}
}

func TestParsePayloadTolerates(t *testing.T) {
	p, err := ParsePayload([]byte(`{"submission_id": 4, "lang": "py", "main": "no.py", "main": "a.py", "mode": "test", "arch": 0,
		"sources": {"b.py": "1", "a.py": "\ud800", "b.py": "2"}, "test_timeout": null}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Files{{"b.py", "2"}, {"a.py", "\uFFFD"}}
	if diff := cmp.Diff(want, p.Sources); diff != "" || p.Main != "a.py" || *p.Arch != "0" {
		t.Errorf("main %q, arch %q, sources (-want +got):\n%s", p.Main, *p.Arch, diff)
	}
	for _, tt := range []struct {
		limit   Timeout
		d       time.Duration
		limited bool
	}{{p.TestTimeout, 0, false}, {p.RankedTimeout, 180 * time.Second, true}, {Seconds(0.25), 250 * time.Millisecond, true}} {
		if d, limited := tt.limit.Limit(); d != tt.d || limited != tt.limited {
			t.Errorf("%+v.Limit() = %v, %v; want %v, %v", tt.limit, d, limited, tt.d, tt.limited)
		}
	}
}

func TestParsePayloadRefuses(t *testing.T) {
	for _, tt := range []struct{ json, want string }{
		{`[]`, `payload: got a list, want an object`},
		{`{"a":`, `payload: json: ends too early`},
		{`{"a" 1}`, `payload: json: syntax error after byte`},
		{`{} {}`, `payload: json: more data after`},
		{`{"x": "` + "\xff" + `"}`, `payload: json: not valid UTF-8`},
		{`{"x": NaN}`, `payload: json: syntax error`},
		{`{"x": 1e999}`, `payload: json: a number beyond`},
		{`{"x": ` + strings.Repeat("1", 5000) + `}`, `an integer of 5000 digits`},
		{strings.Repeat("[", 200), `nested deeper than 100`},
		{`{"files": {"a.py": ""}, "lang": "py", "mode": "test", "main": "a.py"}`, `got the key "files", want "sources"`},
		{`{"lang": "py", "mode": "test", "main": "a.py"}`, `payload: sources: got no such key, want an object`},
		{`{"sources": {"a.py": 1}, "lang": "py", "mode": "test", "main": "a.py"}`, `payload: sources: got a number for "a.py"`},
		{`{"sources": {"a.py": ""}, "mode": "test", "main": "a.py"}`, `payload: lang: got no such key`},
		{`{"sources": {"a.py": ""}, "lang": "rs", "mode": "test", "main": "a.py"}`, `payload: lang: got "rs", want one of ["py" "cu"]`},
		{`{"sources": {"a.py": ""}, "lang": "py", "mode": "tset", "main": "a.py"}`, `payload: mode: got "tset", want one of ["test"`},
		{`{"sources": {"a.py": ""}, "lang": "py", "mode": "test", "main": "b.py"}`, `payload: main: got "b.py"`},
		{`{"sources": {"../a.py": ""}, "lang": "py", "mode": "test", "main": "../a.py"}`, `the file name "../a.py"`},
		{`{"sources": {"a.cu": ""}, "headers": {"a.cu": ""}, "lang": "cu", "mode": "test"}`, `plain file names, each once`},
		{`{"sources": {"a.cu": ""}, "defines": {"A B": null}, "lang": "cu", "mode": "test"}`, `payload: defines: got the name "A B", want an identifier`},
		{`{"sources": {"a.cu": ""}, "defines": {"A": "x\u0000"}, "lang": "cu", "mode": "test"}`, `payload: defines: got the value "x\x00", want a text without NUL`},
		{`{"sources": {"a.cu": ""}, "arch": "\u0000", "lang": "cu", "mode": "test"}`, `payload: arch: got the value "\x00", want a text without NUL`},
		{`{"sources": {"a.cu": ""}, "include_dirs": ["/a\u0000"], "libraries": ["m\u0000"], "lang": "cu", "mode": "test"}`, "payload: include_dirs: got the value \"/a\\x00\", want a text without NUL\npayload: libraries: got the value \"m\\x00\", want a text without NUL"},
		{`{"sources": {"a.py": ""}, "lang": "py", "mode": "test", "main": "a.py", "test_timeout": -1}`, `payload: test_timeout: got -1`},
		{`{"sources": {"a.py": ""}, "lang": "py", "mode": "test", "main": "a.py", "test_timeout": "9"}`, `payload: test_timeout: got a string, want a number`},
		{`{"sources": {"a.py": ""}, "lang": "py", "mode": "test", "main": "a.py", "tests": [3]}`, `payload: tests: got a number in the list`},
		{`{"sources": {"a.py": ""}, "lang": "py", "mode": "test", "main": "a.py", "seed": 1.5}`, `payload: seed: got another number`},
		{`{"sources": {"a.py": ""}, "lang": "py", "mode": "test", "main": "a.py", "ranking_by": "best"}`, `payload: ranking_by`},
	} {
		p, err := ParsePayload([]byte(tt.json))
		if p != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParsePayload(%.80s) = %v, %v; want an error with %q", tt.json, p, err, tt.want)
		}
	}
}

func packed(s string) string {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	w.Write([]byte(s))
	w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func TestDecodePayloadNamesTheLayer(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "payload: base64: nothing there"},
		{"ab!d", "payload: base64: not padded standard base64 at character 2 of 4"},
		{"abc", "payload: base64"},
		{"aGVsbG8=", "payload: zlib"},
		{packed("{}")[:8], "payload: zlib"},
		{packed("{"), "payload: json"},
	} {
		if _, err := DecodePayload(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("DecodePayload(%q) = %v, want an error with %q", tt.text, err, tt.want)
		}
	}
	if _, err := DecodePayload(packed(strings.Repeat(" ", MaxPayload+1))); !errors.Is(err, ErrPayloadTooLarge) {
		t.Errorf("DecodePayload of a bomb = %v, want ErrPayloadTooLarge", err)
	}
}

func FuzzDecodePayload(f *testing.F) {
	for _, p := range []*Payload{pythonPayload(f), cudaPayload()} {
		f.Add([]byte(p.JSON()))
	}
	f.Add([]byte(`{"lang": "cu", "mode": "test", "sources": {"a": ""}, "tests": [{"f": -0.0, "i": -0, "s": "\ud83d"}], "test_timeout": 0.1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodePayload(packed(string(data)))
		if err != nil {
			if p != nil {
				t.Fatalf("a value with the error %v", err)
			}
			return
		}
		encoded, err := p.Encode()
		if err != nil {
			t.Fatalf("Encode of a decoded payload: %v", err)
		}
		again, err := DecodePayload(encoded)
		if err != nil {
			t.Fatalf("DecodePayload of an encoded payload: %v", err)
		}
		if diff := cmp.Diff(p, again, compare); diff != "" {
			t.Fatalf("decode(encode(p)) (-want +got):\n%s", diff)
		}
		for _, c := range append(p.Tests, p.Benchmarks...) {
			c.Text()
		}
	})
}
