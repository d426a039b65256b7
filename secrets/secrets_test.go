package secrets

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/secrets/refused"
)

const (
	organization = "0190aaaa-0000-4000-8000-000000000001"
	pipeline     = "0190aaaa-0000-4000-8000-000000000002"
	queue        = "0190aaaa-0000-4000-8000-000000000003"
	other        = "0190aaaa-0000-4000-8000-0000000000ff"
	canary       = "kbcanary-value-0123456789"
)

var (
	issued = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	claims = Claims{Organization: organization, Pipeline: pipeline, Queue: queue, Step: "post", Ref: "refs/heads/main", Source: "api"}
)

func sample(value string) *Secret {
	return &Secret{
		Name: "CODECOV_TOKEN", Value: []byte(value), Issued: issued, Expires: issued.Add(DefaultLife), KeyID: "lab-2026", By: "a maintainer",
		Binding: Binding{Organization: organization, Pipelines: []string{other, pipeline}},
	}
}

func key(t testing.TB, kind Kind) *PrivateKey {
	t.Helper()
	if kind == RSA {
		file, err := os.ReadFile(filepath.Join("legacy", "testdata", "private.pem"))
		if err != nil {
			t.Fatal(err)
		}
		keys, err := ParsePrivateKeys(file)
		if err != nil {
			t.Fatal(err)
		}
		return keys[0]
	}
	k, _, err := GenerateKey(kind)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealed(t testing.TB, s *Secret, keys ...*PrivateKey) string {
	t.Helper()
	var recipients []age.Recipient
	for _, k := range keys {
		recipients = append(recipients, k.Public.Recipient)
	}
	text, err := Seal(s, recipients)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func reason(err error) refused.Reason {
	r := new(refused.Refusal)
	if errors.As(err, &r) {
		return r.Reason
	}
	return ""
}

func TestSealAndOpenWithEveryKindOfKey(t *testing.T) {
	for _, kind := range []Kind{Hybrid, X25519} {
		k := key(t, kind)
		s := sample(canary)
		s.NotBefore, s.Queues, s.Steps, s.Refs, s.Sources = issued, []string{queue}, []string{"post"}, []string{"refs/heads/main"}, []string{"api"}
		text := sealed(t, s, k)
		got, err := Open(text, Identities([]*PrivateKey{key(t, X25519), k}))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if !reflect.DeepEqual(got, s) {
			t.Errorf("%s: got %+v, want %+v", kind, got, s)
		}
		if err := got.Allow("CODECOV_TOKEN", issued.Add(time.Hour), claims); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		t.Logf("%s: %d characters", kind, len(text))
	}
}

func TestValuesSurviveByteForByte(t *testing.T) {
	k := key(t, X25519)
	everything := make([]byte, 256)
	for i := range everything {
		everything[i] = byte(i)
	}
	for _, value := range []string{
		" leading and trailing  ", "*", "-n", `back\slash`, "a\r\nb\r\n", "-----BEGIN X-----\nMII\n-----END X-----\n", "\x00", "\xff\xfe", string(everything),
		"\u2028\u2029<>&", `"quoted"`, "\b\t\n\f\r\x1b[31m", "\U0001f511", strings.Repeat("\x01", MaxValue), strings.Repeat("\xff", MaxValue), "x",
	} {
		got, err := Open(sealed(t, sample(value), k), Identities([]*PrivateKey{k}))
		if err != nil || string(got.Value) != value {
			t.Errorf("%.20q: %v, or another value", value, err)
		}
	}
}

// Every way to be refused is told from the others, and none tells the value.
func TestRefusals(t *testing.T) {
	k := key(t, Hybrid)
	mine := []*PrivateKey{k}
	allow := func(text string, keys []*PrivateKey, name string, now time.Time, c Claims) error {
		s, err := Open(text, Identities(keys))
		if err != nil {
			return err
		}
		return s.Allow(name, now, c)
	}
	full := sample(canary)
	full.NotBefore = issued.Add(time.Hour)
	full.Queues, full.Steps, full.Refs, full.Sources = []string{queue}, []string{"post"}, []string{"refs/heads/main"}, []string{"api"}
	text := sealed(t, full, k)
	file, _ := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(text, Prefix))
	flipped := func(at int) string {
		b := bytes.Clone(file)
		b[at] ^= 1
		return Prefix + base64.RawURLEncoding.EncodeToString(b)
	}
	now := issued.Add(2 * time.Hour)
	with := func(change func(*Claims)) Claims {
		c := claims
		change(&c)
		return c
	}
	for _, tt := range []struct {
		what   string
		text   string
		keys   []*PrivateKey
		name   string
		now    time.Time
		claims Claims
		want   refused.Reason
		words  string
	}{
		{"as it should be", text, mine, "CODECOV_TOKEN", now, claims, "", ""},
		{"another pipeline", text, mine, "CODECOV_TOKEN", now, with(func(c *Claims) { c.Pipeline = queue }), refused.WrongPipeline, queue},
		{"no pipeline", text, mine, "CODECOV_TOKEN", now, with(func(c *Claims) { c.Pipeline = "" }), refused.WrongPipeline, `got ""`},
		{"another organization", text, mine, "CODECOV_TOKEN", now, with(func(c *Claims) { c.Organization = other }), refused.WrongOrganization, other},
		{"another queue", text, mine, "CODECOV_TOKEN", now, with(func(c *Claims) { c.Queue = other }), refused.WrongQueue, other},
		{"another step", text, mine, "CODECOV_TOKEN", now, with(func(c *Claims) { c.Step = "evaluate" }), refused.WrongStep, "want post"},
		{"another ref", text, mine, "CODECOV_TOKEN", now, with(func(c *Claims) { c.Ref = "refs/pull/1/head" }), refused.WrongRef, "refs/heads/main"},
		{"another source", text, mine, "CODECOV_TOKEN", now, with(func(c *Claims) { c.Source = "webhook" }), refused.WrongSource, "want api"},
		{"expired", text, mine, "CODECOV_TOKEN", issued.Add(DefaultLife), claims, refused.Expired, "2027-11-22"},
		{"too early", text, mine, "CODECOV_TOKEN", issued, claims, refused.NotYetValid, "2026-11-22 13:00"},
		{"renamed", text, mine, "NPM_TOKEN", now, claims, refused.Renamed, "sealed as CODECOV_TOKEN"},
		{"another hybrid key", text, []*PrivateKey{key(t, Hybrid)}, "CODECOV_TOKEN", now, claims, refused.UnknownRecipient, "one hybrid key"},
		{"a key of the old formats", text, []*PrivateKey{key(t, RSA)}, "CODECOV_TOKEN", now, claims, refused.UnknownRecipient, "the old formats and nothing else"},
		{"last byte", flipped(len(file) - 1), mine, "CODECOV_TOKEN", now, claims, refused.Altered, "content"},
		{"a byte of the content", flipped(len(file) - 60), mine, "CODECOV_TOKEN", now, claims, refused.Altered, "content"},
		{"the first byte", flipped(0), mine, "CODECOV_TOKEN", now, claims, refused.Altered, "header"},
		{"cut short", Prefix + base64.RawURLEncoding.EncodeToString(file[:len(file)-5]), mine, "CODECOV_TOKEN", now, claims, refused.Altered, "content"},
		{"no prefix", text[1:], mine, "CODECOV_TOKEN", now, claims, refused.Malformed, Prefix},
		{"a line end within", text[:100] + "\n" + text[100:], mine, "CODECOV_TOKEN", now, claims, refused.Malformed, "base64url"},
		{"padded", text + "=", mine, "CODECOV_TOKEN", now, claims, refused.Malformed, "base64url"},
		{"empty", Prefix, mine, "CODECOV_TOKEN", now, claims, refused.Altered, "header"},
		{"long", Prefix + strings.Repeat("A", maxEnvelope), mine, "CODECOV_TOKEN", now, claims, refused.TooLarge, "at most"},
	} {
		err := allow(tt.text, tt.keys, tt.name, tt.now, tt.claims)
		if reason(err) != tt.want || (err == nil) != (tt.want == "") {
			t.Errorf("%s: got %v, want %q", tt.what, err, tt.want)
			continue
		}
		if err != nil && (!strings.Contains(err.Error(), tt.words) || strings.Contains(err.Error(), canary)) {
			t.Errorf("%s: got %q, want %q in it and nothing of the value", tt.what, err, tt.words)
		}
	}
}

// Every byte of an envelope counts: whatever is flipped, nothing opens.
func TestEveryByteCounts(t *testing.T) {
	k := key(t, X25519)
	file, _ := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(sealed(t, sample(canary), k), Prefix))
	for at := range file {
		b := bytes.Clone(file)
		b[at] ^= 0x20
		if _, err := Open(Prefix+base64.RawURLEncoding.EncodeToString(b), Identities([]*PrivateKey{k})); err == nil {
			t.Errorf("byte %d of %d flipped: opened", at, len(file))
		}
	}
}

// Who knows the public key can seal anything, and only one form of it is taken.
func TestForeignObjects(t *testing.T) {
	k := key(t, X25519)
	canonical := string(sample(canary).encode(true))
	if !json.Valid([]byte(canonical)) {
		t.Fatalf("the canonical form is no JSON: %s", canonical)
	}
	seal := func(object string) string {
		var file bytes.Buffer
		w, err := age.Encrypt(&file, k.Public.Recipient)
		if err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(object))
		w.Close()
		return Prefix + base64.RawURLEncoding.EncodeToString(file.Bytes())
	}
	if _, err := Open(seal(canonical), Identities([]*PrivateKey{k})); err != nil {
		t.Fatalf("the canonical form: %v", err)
	}
	for what, object := range map[string]string{
		"a blank":             strings.Replace(canonical, ":", ": ", 1),
		"an unknown member":   strings.Replace(canonical, "{", `{"admin":true,`, 1),
		"a member twice":      strings.Replace(canonical, `"name":`, `"name":"PATH","name":`, 1),
		"another spelling":    strings.Replace(canonical, `"name":`, `"Name":`, 1),
		"another order":       strings.Replace(strings.Replace(canonical, `"v":1,`, "", 1), "{", `{"v":1,`, 1),
		"an escape":           strings.Replace(canonical, "CODECOV", `\u0043ODECOV`, 1),
		"another version":     strings.Replace(canonical, `"v":1`, `"v":2`, 1),
		"more behind it":      canonical + "{}",
		"a denied name":       strings.Replace(canonical, "CODECOV_TOKEN", "LD_PRELOAD", 1),
		"no pipeline":         strings.Replace(canonical, `"pipelines":["`+other+`","`+pipeline+`"],`, "", 1),
		"a slug":              strings.Replace(canonical, other, "kernels", 1),
		"a value as base64":   strings.Replace(canonical, `"value":"`+canary+`"`, `"value_b64":"`+base64.StdEncoding.EncodeToString([]byte(canary))+`"`, 1),
		"both values":         strings.Replace(canonical, `"value":`, `"value_b64":"AAAA","value":`, 1),
		"no value":            strings.Replace(canonical, `,"value":"`+canary+`"`, "", 1),
		"bytes that are none": strings.Replace(canonical, canary, canary+"\xff", 1),
		"an array":            "[]",
		"nothing":             "",
		"nesting":             strings.Repeat("[", 100_000),
		"much":                `{"value":"` + strings.Repeat("x", maxEnvelope) + `"}`,
	} {
		s, err := Open(seal(object), Identities([]*PrivateKey{k}))
		if s != nil || (reason(err) != refused.Malformed && reason(err) != refused.TooLarge) {
			t.Errorf("%s: got %v, %v, want it refused as malformed", what, s, err)
		}
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the error holds the value", what)
		}
	}
}

func TestSignatures(t *testing.T) {
	public, private, _ := ed25519.GenerateKey(rand.Reader)
	stranger, _, _ := ed25519.GenerateKey(rand.Reader)
	k := key(t, X25519)
	s := sample(canary)
	if err := s.Signed([]ed25519.PublicKey{public}); reason(err) != refused.Unsigned {
		t.Errorf("without a signature: got %v", err)
	}
	s.Sign(private)
	got, err := Open(sealed(t, s, k), Identities([]*PrivateKey{k}))
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Signed([]ed25519.PublicKey{stranger, public}); err != nil {
		t.Errorf("signed: %v", err)
	}
	if err := got.Signed([]ed25519.PublicKey{stranger, nil}); reason(err) != refused.Unsigned {
		t.Errorf("of a stranger: got %v", err)
	}
	got.Expires = got.Expires.Add(time.Hour)
	if err := got.Signed([]ed25519.PublicKey{public}); reason(err) != refused.Unsigned {
		t.Errorf("with another day: got %v", err)
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Secret){
		"want capital letters":        func(s *Secret) { s.Name = "codecov" },
		"changes what a job's":        func(s *Secret) { s.Name = "LD_PRELOAD" },
		"value: got 0 bytes":          func(s *Secret) { s.Value = nil },
		"value: got 32769 bytes":      func(s *Secret) { s.Value = make([]byte, MaxValue+1) },
		"organization: got":           func(s *Secret) { s.Organization = "gpu-mode" },
		"pipelines: got none":         func(s *Secret) { s.Pipelines = nil },
		`pipelines: got "kernels"`:    func(s *Secret) { s.Pipelines = []string{"kernels"} },
		"pipelines: got 65":           func(s *Secret) { s.Pipelines = slices.Repeat([]string{pipeline}, 65) },
		`refs: got "main"`:            func(s *Secret) { s.Refs = []string{"main"} },
		`sources: got "email"`:        func(s *Secret) { s.Sources = []string{"email"} },
		`steps: got "a\x1b[2J"`:       func(s *Secret) { s.Steps = []string{"a\x1b[2J"} },
		"expires: got no time":        func(s *Secret) { s.Expires = time.Time{} },
		"issued: got no time":         func(s *Secret) { s.Issued = time.Time{} },
		"want a time after":           func(s *Secret) { s.Expires = s.Issued },
		"want a time after it begins": func(s *Secret) { s.NotBefore = s.Expires },
		"key id: got":                 func(s *Secret) { s.KeyID = "" },
		"by: got":                     func(s *Secret) { s.By = "two\nlines" },
	} {
		s := sample(canary)
		change(s)
		if _, err := Seal(s, []age.Recipient{key(t, X25519).Public.Recipient}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), canary) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, good := range []string{"CODECOV_TOKEN", "A", "X9_", "PATHS", "ENVIRONMENT", "CUDA", "MY_PATH"} {
		if err := CheckName(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a", "1A", "A-B", "A B", "PATH", "BASH_ENV", "LD_PRELOAD", "GIT_SSH_COMMAND", "PYTHONPATH", "BUILDKITE_AGENT_TOKEN", "KBGEN_X", "A\n", strings.Repeat("A", 256)} {
		if CheckName(bad) == nil {
			t.Errorf("%.20q may be a name", bad)
		}
	}
	if schema.RedactedName("CODECOV_TOKEN" + Suffix) {
		t.Error("agents refuse the name of the variable that carries an envelope")
	}
}

func TestKeys(t *testing.T) {
	for _, kind := range []Kind{Hybrid, X25519} {
		k, line, err := GenerateKey(kind)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := ParsePrivateKeys([]byte("# made today\r\n\n" + line + "\r\n"))
		if err != nil || len(keys) != 1 || keys[0].Public.Text != k.Public.Text || keys[0].Kind != kind {
			t.Errorf("%s: read back: %v", kind, err)
		}
		other := "Q"
		if strings.HasSuffix(line, other) {
			other = "P"
		}
		if _, err := ParsePrivateKeys([]byte("# a comment\n" + line[:len(line)-1] + other)); err == nil || !strings.Contains(err.Error(), "line 2") || strings.Contains(err.Error(), line[20:40]) {
			t.Errorf("%s with a letter changed: %v", kind, err)
		}
		if _, err := ParsePublicKey(line); err == nil || strings.Contains(err.Error(), line[20:40]) || !strings.Contains(err.Error(), "private key") {
			t.Errorf("%s: a private key as a recipient: %v", kind, err)
		}
	}
	pemFile, err := os.ReadFile(filepath.Join("legacy", "testdata", "public.pem"))
	if err != nil {
		t.Fatal(err)
	}
	// A key serves one format: with an RSA key that opens the old ones, a broker is an
	// oracle for everything else that is sealed for it.
	for _, rsaKey := range []string{string(pemFile), "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ somebody@lab"} {
		if _, err := ParsePublicKey(rsaKey); err == nil || !strings.Contains(err.Error(), "got an RSA key, which opens the old formats and nothing else") {
			t.Errorf("an RSA key as a recipient: got %v", err)
		}
	}
	for _, bad := range []string{"", "hello", "age1xyz", "age1pq1xyz", "ssh-rsa AAAA", "ssh-ed25519 AAAAC3Nz"} {
		if _, err := ParsePublicKey(bad); err == nil {
			t.Errorf("ParsePublicKey(%q): no error", bad)
		}
	}
}

func TestRecipients(t *testing.T) {
	a, b, c := key(t, Hybrid).Public.Text, key(t, Hybrid).Public.Text, key(t, X25519).Public.Text
	file := "# keys of the lab\nold 2025-01-01 2026-01-01 " + a + "\n\nlab-2026 2026-01-01 - " + b + "\n"
	rs, err := ParseRecipients(file)
	if err != nil || len(rs) != 2 {
		t.Fatalf("%d recipients, %v", len(rs), err)
	}
	current, err := rs.Current(issued)
	if err != nil || len(current) != 1 || current.KeyID() != "lab-2026" {
		t.Errorf("current: %v, %v", current, err)
	}
	if rs.KeyID() != "lab-2026+old" {
		t.Errorf("key id of both: %s", rs.KeyID())
	}
	again, err := ParseRecipients(rs[0].String() + "\n" + rs[1].String())
	if err != nil || !reflect.DeepEqual(again.KeyID(), rs.KeyID()) {
		t.Errorf("written and read: %v", err)
	}
	for file, want := range map[string]string{
		"lab 2026-01-01 -":                                    "line 1: got 3 words",
		"LAB 2026-01-01 - " + a:                               "line 1: name",
		"a+b 2026-01-01 - " + a:                               "line 1: name",
		"lab today - " + a:                                    "line 1: day added",
		"lab 2026-01-01 never " + a:                           "line 1: day retired",
		"lab 2026-01-01 - nothing":                            "line 1: got",
		"\nlab 2026-01-01 - " + a + "\nlab 2026-01-01 - " + b: "line 3: got lab again",
		"one 2026-01-01 - " + a + "\ntwo 2026-01-01 - " + a:   "line 2: got the key of another line again",
	} {
		if _, err := ParseRecipients(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %q", file, err, want)
		}
	}
	mixed, err := ParseRecipients("one 2026-01-01 - " + a + "\ntwo 2026-01-01 - " + c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mixed.Current(issued); err == nil || !strings.Contains(err.Error(), "two: got a key of kind x25519 beside hybrid ones") {
		t.Errorf("hybrid beside X25519: got %v", err)
	}
	none, _ := ParseRecipients("")
	if _, err := none.Current(issued); err == nil {
		t.Error("no key: no error")
	}
}

func TestNeedles(t *testing.T) {
	value := "first line\nsecond line\nab\n"
	got := Needles([]byte(value))
	for _, want := range []string{
		value, "first line", "second line", base64.StdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value)),
		"first+line%0Asecond+line%0Aab%0A", "first%20line%0Asecond%20line%0Aab%0A", `first line\nsecond line\nab\n`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no needle %q", want)
		}
	}
	if slices.Contains(got, "ab") {
		t.Error("a needle of two letters mutilates every log")
	}
	if !slices.Contains(Needles([]byte("hunter2")), "aHVudGVyMgo=") { // echo hunter2 | base64
		t.Error("no needle for what echo and base64 make of the value")
	}
	for _, user := range []string{"u:", "us:", "bot:"} { // a header of HTTP has this form
		header := base64.StdEncoding.EncodeToString([]byte(user + "hunter2-hunter2"))
		if !slices.ContainsFunc(Needles([]byte("hunter2-hunter2")), func(n string) bool { return strings.Contains(header, n) }) {
			t.Errorf("no needle is in %s, base64 of %shunter2-hunter2", header, user)
		}
	}
	for _, n := range Needles([]byte("\xff\xfe\xfd\xfc\xfb\xfa")) {
		if !slices.Contains([]string{"//79/Pv6", "__79_Pv6", "//79/Pv6Cg==", "__79_Pv6Cg==", "//79/Pv6Cg", "__79_Pv6Cg", "/+/fz7+", "_-_fz7-", "//v38+/", "__v38-_"}, n) && !strings.Contains(strings.ToLower(n), "fffefd") && !strings.Contains(n, "%FF") {
			t.Errorf("a needle of bytes that are no text: %q", n)
		}
	}
	seen := map[string]bool{}
	chunks := RedactorChunks("CODECOV_TOKEN", bytes.Repeat([]byte("a long line of text\n"), 100), 4096)
	for _, chunk := range chunks {
		var m map[string]string
		if err := json.Unmarshal(chunk, &m); err != nil {
			t.Fatalf("%v: %.80s", err, chunk)
		}
		if len(chunk) > 4096 && len(m) > 1 {
			t.Errorf("a chunk of %d bytes with %d needles", len(chunk), len(m))
		}
		for _, v := range m {
			seen[v] = true
		}
	}
	if want := Needles(bytes.Repeat([]byte("a long line of text\n"), 100)); len(seen) != len(want) || len(chunks) < 2 {
		t.Errorf("%d needles in %d chunks, want %d in several", len(seen), len(chunks), len(want))
	}
}

// No text makes Open panic or hand out what it did not check.
func FuzzOpen(f *testing.F) {
	k := key(f, X25519)
	text := sealed(f, sample(canary), k)
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add(Prefix)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Open(text, Identities([]*PrivateKey{k}))
		if (s == nil) == (err == nil) {
			t.Fatalf("got %v and %v", s, err)
		}
		if s != nil && s.Validate() != nil {
			t.Errorf("an invalid secret was opened: %v", s.Validate())
		}
	})
}

// The object within: what is read is written back byte for byte.
func FuzzDecode(f *testing.F) {
	f.Add(sample(canary).encode(true))
	f.Add([]byte(`{"exp":1,"iat":0,"v":1}`))
	f.Add([]byte(`{"exp":-1,"iat":0,"nbf":0,"v":1,"value":"\u2028"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, err := decode(raw); err == nil && !bytes.Equal(s.encode(true), raw) {
			t.Errorf("%q is read and written as %q", raw, s.encode(true))
		}
	})
}

// Recipients files come from repositories that anybody may change.
func FuzzParseRecipients(f *testing.F) {
	f.Add("lab-2026 2026-01-01 - " + key(f, X25519).Public.Text)
	f.Fuzz(func(t *testing.T, file string) {
		rs, err := ParseRecipients(file)
		if err != nil {
			return
		}
		var lines []string
		for _, r := range rs {
			lines = append(lines, r.String())
		}
		again, err := ParseRecipients(strings.Join(lines, "\n"))
		if err != nil || len(again) != len(rs) {
			t.Errorf("written again: %d recipients, %v, want %d", len(again), err, len(rs))
		}
	})
}

// A payload opens for its run alone, however long it is, and nothing else is
// bound to a run.
func TestPayloads(t *testing.T) {
	k := key(t, X25519)
	to := Recipients{{Name: "lab-2026", Added: issued, Key: k.Public}}
	b := sample(canary).Binding
	long := canary + strings.Repeat("x", maxPayload-len(canary))
	text, err := SealPayload(long, "sub-1-B200-77", b, to, issued, time.Hour)
	if err != nil || len(text) > maxPayloadEnvelope {
		t.Fatalf("%d characters, %v", len(text), err)
	}
	if _, err := Open(text, Identities([]*PrivateKey{k})); reason(err) != refused.TooLarge {
		t.Errorf("opened as any other secret: %v, want %s", err, refused.TooLarge)
	}
	s, err := OpenPayload(text, Identities([]*PrivateKey{k}))
	if err != nil || string(s.Value) != long {
		t.Fatalf("%d bytes, %v", len(s.Value), err)
	}
	for run, want := range map[string]refused.Reason{"sub-1-B200-77": "", "sub-1-B200-78": refused.WrongRun, "": refused.WrongRun} {
		c := claims
		c.Run = run
		if err := s.Allow(payloadName, issued, c); reason(err) != want {
			t.Errorf("run %q: %v, want %q", run, err, want)
		}
	}
	c := claims
	c.Run = "sub-1-B200-77"
	if err := s.Allow(payloadName, issued.Add(time.Hour), c); reason(err) != refused.Expired {
		t.Errorf("an hour later: %v", err)
	}
	for what, bad := range map[string]*Secret{
		"a payload of no run":   {Name: payloadName},
		"a token of a run":      {Name: "NPM_TOKEN", Binding: Binding{Run: "sub-1"}},
		"a run of a line end":   {Name: payloadName, Binding: Binding{Run: "sub\n1"}},
		"a run of 201 letters":  {Name: payloadName, Binding: Binding{Run: strings.Repeat("r", 201)}},
		"a payload of too much": {Name: payloadName, Binding: Binding{Run: "r"}, Value: []byte(long + "x")},
	} {
		run := bad.Run
		good := sample(canary)
		good.Name, good.Run = bad.Name, run
		if bad.Value != nil {
			good.Value = bad.Value
		}
		if err := good.Validate(); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v, want a fault without the value", what, err)
		}
	}
}
