package secrets

import (
	"strings"
	"testing"
)

func TestStore(t *testing.T) {
	k := key(t, X25519)
	s := NewStore()
	first := sample(canary)
	s.Set(first, sealed(t, first, k))
	second := sample("another value")
	second.Name = "NPM_TOKEN"
	s.Set(second, sealed(t, second, k))
	text, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := "# Values that only the vendors' nodes can read. Written by: kbgen secret encrypt --store\nversion: 1\nsecrets:\n" +
		"  CODECOV_TOKEN:\n    kid: lab-2026\n    issued: 2026-11-22\n    expires: 2027-11-22\n    envelope: " + s.Entries[0].Envelope + "\n" +
		"  NPM_TOKEN:\n    kid: lab-2026\n    issued: 2026-11-22\n    expires: 2027-11-22\n    envelope: " + s.Entries[1].Envelope + "\n"
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}

	// What people write into the file stays.
	commented := strings.Replace(string(text), "  NPM_TOKEN:", "  # for releases; ask Ada\n  NPM_TOKEN:", 1)
	read, err := ParseStore([]byte(commented))
	if err != nil {
		t.Fatal(err)
	}
	e, ok := read.Lookup("NPM_TOKEN")
	if !ok || e.Line != 10 || e.KeyID != "lab-2026" || e.Expires.Format("2006-01-02") != "2027-11-22" {
		t.Errorf("got %+v, %t", e, ok)
	}
	opened, err := Open(e.Envelope, Identities([]*PrivateKey{k}))
	if err != nil || string(opened.Value) != "another value" {
		t.Errorf("read back: %v", err)
	}
	second.KeyID = "lab-2027"
	read.Set(second, sealed(t, second, k))
	again, err := read.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(again), "# for releases; ask Ada\n  NPM_TOKEN:\n    kid: lab-2027\n") || strings.Count(string(again), "NPM_TOKEN") != 1 {
		t.Errorf("after a change:\n%s", again)
	}
}

func TestParseStoreRefuses(t *testing.T) {
	envelope := sealed(t, sample(canary), key(t, X25519))
	good := "version: 1\nsecrets:\n  CODECOV_TOKEN:\n    kid: lab\n    issued: 2026-11-22\n    expires: 2027-11-22\n    envelope: " + envelope + "\n"
	if _, err := ParseStore([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for want, file := range map[string]string{
		"not YAML":                   "\tx",
		"got no mapping":             "[]",
		`line 1: got key "v"`:        "v: 1",
		"got no version 1":           strings.Replace(good, "version: 1", "version: 2", 1),
		"got no mapping sec":         "version: 1\nsecrets: []",
		"line 3: name":               strings.Replace(good, "CODECOV_TOKEN", "codecov", 1),
		"got CODECOV_TOKEN ag":       good + strings.SplitN(good, "secrets:\n", 2)[1],
		"line 4: CODECOV_TOKEN: kid": strings.Replace(good, "kid: lab", "kid: A B", 1),
		"line 6: CODECOV_TOKEN: expires: got \"soon\", wa": strings.Replace(good, "2027-11-22", "soon", 1),
		"line 7: CODECOV_TOKEN: envelope: malformed":       strings.Replace(good, Prefix, "kbsec2:", 1),
		"line 7: CODECOV_TOKEN: value: want":               strings.Replace(good, "envelope:", "value:", 1),
		"more than one document":                           good + "---\n" + good,
		"at most 4194304":                                  good + "#" + strings.Repeat("x", maxStore),
	} {
		_, err := ParseStore([]byte(file))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), envelope[20:60]) {
			t.Errorf("got %v, want %q and nothing of the envelope", err, want)
		}
	}
}

// A store file comes from a repository: whatever is in it, what is read can be
// written and read again.
func FuzzParseStore(f *testing.F) {
	f.Add("version: 1\nsecrets:\n  A:\n    kid: lab\n    envelope: kbsec1:AAAA\n")
	f.Add("version: 1\nsecrets: {A: &a {envelope: 'kbsec1:'}, B: *a}\n")
	f.Fuzz(func(t *testing.T, file string) {
		s, err := ParseStore([]byte(file))
		if err != nil {
			return
		}
		text, err := s.Encode()
		if err != nil {
			t.Fatalf("written: %v", err)
		}
		again, err := ParseStore(text)
		if err != nil || len(again.Entries) != len(s.Entries) {
			t.Errorf("read again: %v\n%q", err, text)
		}
	})
}
