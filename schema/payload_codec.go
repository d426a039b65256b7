package schema

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// MaxPayload is the limit on a payload's JSON, in bytes.
const MaxPayload = 8 << 20

// ErrPayloadTooLarge is a payload whose JSON passes [MaxPayload].
var ErrPayloadTooLarge = fmt.Errorf("more than %d bytes of JSON", MaxPayload)

// Encode returns the payload as Kernelbot writes it: standard padded base64 of
// a zlib stream (level 6) of the JSON that Python's json.dumps would give,
// keys in Kernelbot's order. An absent timeout stays absent.
//
// Errors: those of [Payload.Validate], and [ErrPayloadTooLarge].
func (p *Payload) Encode() (string, error) {
	if err := p.Validate(); err != nil {
		return "", err
	}
	text := p.JSON()
	if len(text) > MaxPayload {
		return "", fmt.Errorf("encoding payload: %w", ErrPayloadTooLarge)
	}
	return pack([]byte(text), 6), nil
}

// pack returns padded standard base64 of a zlib stream.
func pack(data []byte, level int) string {
	var b bytes.Buffer
	w, err := zlib.NewWriterLevel(&b, level)
	if err != nil {
		panic(err) // no such level, which is a constant
	}
	w.Write(data) // a bytes.Buffer takes everything
	w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// unpack returns the content of a zlib stream, one byte beyond limit at most.
func unpack(packed []byte, limit int64) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, limit+1))
}

// JSON returns the payload's JSON on one line, as json.dumps writes it.
func (p *Payload) JSON() string {
	n := node{kind: kindObject}
	set := func(name string, v node) { n.members = append(n.members, member{name, v}) }
	if p.Lang == LangPython {
		set("main", str(p.Main))
		set("sources", filesNode(p.Sources))
	} else {
		set("sources", filesNode(p.Sources))
		set("headers", filesNode(p.Headers))
		set("defines", definesNode(p.Defines))
		set("compile_flags", strs(p.CompileFlags))
		set("include_dirs", strs(p.IncludeDirs))
		if len(p.Libraries) > 0 {
			set("libraries", strs(p.Libraries))
		}
	}
	set("lang", str(p.Lang))
	set("arch", optional(p.Arch))
	set("benchmarks", casesNode(p.Benchmarks))
	set("tests", casesNode(p.Tests))
	set("mode", str(p.Mode))
	for _, t := range p.timeouts() {
		if t.limit.set {
			set(t.key, t.limit.node())
		}
	}
	set("ranking_by", str(cmp.Or(p.RankingBy, RankLast)))
	if p.Seed == nil {
		set("seed", node{})
	} else {
		set("seed", node{kind: kindNumber, text: strconv.FormatInt(*p.Seed, 10)})
	}
	set("multi_gpu", boolean(p.MultiGPU))
	if p.Harness != "" {
		set("harness", str(p.Harness))
	}
	if p.Inputs != "" {
		set("inputs", str(p.Inputs))
	}
	if e := p.Evidence; e != (MinEvidence{}) {
		set("evidence", node{kind: kindObject, members: []member{
			{"runs", node{kind: kindNumber, text: strconv.Itoa(e.Runs)}},
			{"width", node{kind: kindNumber, text: FloatRepr(e.Width)}},
		}})
	}
	return jsonNotation.text(&n)
}

func filesNode(files Files) node {
	n := node{kind: kindObject}
	for _, f := range files {
		n.members = append(n.members, member{f.Name, str(f.Text)})
	}
	return n
}

func definesNode(defines []Define) node {
	n := node{kind: kindObject}
	for _, d := range defines {
		n.members = append(n.members, member{d.Name, optional(d.Value)})
	}
	return n
}

func optional(s *string) node {
	if s == nil {
		return node{}
	}
	return str(*s)
}

// DecodePayload decodes what [Payload.Encode] or Kernelbot made.
//
// Shape: padded standard base64, spaces and line ends anywhere, of a zlib
// stream of one JSON object. Top-level keys it does not know are ignored,
// since launchers are upgraded before runners. Of two equal names in an object
// the last value counts, as in Python. Keys the language does not use are
// dropped. An arch given as a number is taken as its digits.
//
// Size: at most [MaxPayload] bytes of JSON; inflation stops there.
//
// Errors: [ErrPayloadTooLarge], the layer that failed (base64, zlib, json), or
// [Payload.Validate]'s. No error quotes file texts, cases or the seed.
func DecodePayload(text string) (*Payload, error) {
	raw, err := inflate(text)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	return ParsePayload(raw)
}

func inflate(text string) ([]byte, error) {
	text = strings.Join(strings.Fields(text), "")
	if text == "" {
		return nil, errors.New("base64: nothing there")
	}
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		if at, ok := errors.AsType[base64.CorruptInputError](err); ok {
			return nil, fmt.Errorf("base64: not padded standard base64 at character %d of %d", int64(at), len(text))
		}
		return nil, fmt.Errorf("base64: %v", err)
	}
	raw, err := unpack(packed, MaxPayload)
	if err != nil {
		return nil, fmt.Errorf("zlib: %v", err)
	}
	if len(raw) > MaxPayload {
		return nil, ErrPayloadTooLarge
	}
	return raw, nil
}

// ParsePayload decodes the JSON of a payload under [DecodePayload]'s rules.
func ParsePayload(data []byte) (*Payload, error) {
	root, err := parseJSON(data)
	if err != nil {
		return nil, fmt.Errorf("payload: json: %w", err)
	}
	if root.kind != kindObject {
		return nil, &Finding{Path: "payload", Got: root.kind.String(), Want: kindObject.String()}
	}
	_, sources := root.get("sources")
	if _, files := root.get("files"); files && !sources {
		return nil, errors.New(`payload: got the key "files", want "sources": an object of file name to text`)
	}
	d := fields{node: root, path: "payload: ", err: new(error)}
	p := d.payload()
	if *d.err != nil {
		return nil, *d.err
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

func (d *fields) payload() *Payload {
	p := &Payload{
		Sources:          d.files("sources", true),
		Lang:             d.str("lang", true),
		Arch:             d.arch(),
		Benchmarks:       d.cases("benchmarks"),
		Tests:            d.cases("tests"),
		Mode:             d.str("mode", true),
		TestTimeout:      d.timeout("test_timeout"),
		BenchmarkTimeout: d.timeout("benchmark_timeout"),
		RankedTimeout:    d.timeout("ranked_timeout"),
		RankingBy:        cmp.Or(d.str("ranking_by", false), RankLast),
		Seed:             d.seed(),
		MultiGPU:         d.bool("multi_gpu", false),
		Extension: Extension{
			Harness: d.str("harness", false),
			Inputs:  d.str("inputs", false),
			Evidence: object(d, "evidence", func(d *fields) MinEvidence {
				return MinEvidence{Runs: int(d.int("runs")), Width: d.float("width", true)}
			}),
		},
	}
	if p.Lang == LangPython {
		p.Main = d.str("main", p.Harness != HarnessIsolated)
		return p
	}
	p.Headers = d.files("headers", false)
	p.Defines = d.defines()
	p.CompileFlags = d.strs("compile_flags")
	p.IncludeDirs = d.strs("include_dirs")
	p.Libraries = d.strs("libraries")
	return p
}
