package schema

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

func find(env map[string]string) (string, error) {
	return FindPayload(func(k string) (string, bool) { v, ok := env[k]; return v, ok })
}

func TestCarriers(t *testing.T) {
	for _, n := range []int{1, MaxInline, MaxInline + 1, 3 * MaxInline, MaxChunks * MaxInline} {
		want := strings.Repeat("abcdefg", n/7+1)[:n]
		env, err := PayloadEnv(want)
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range env {
			if len(name)+len(v)+2 > 128<<10 || !slices.Contains(PayloadVars(), name) {
				t.Errorf("%d characters: %s has %d, or is not in PayloadVars", n, name, len(v))
			}
		}
		if got, err := find(env); got != want || err != nil {
			t.Errorf("%d characters: FindPayload(PayloadEnv(s)) = %d characters, %v", n, len(got), err)
		}
	}
	if _, err := PayloadEnv(strings.Repeat("a", MaxChunks*MaxInline+1)); !errors.Is(err, ErrPayloadTooLong) {
		t.Errorf("PayloadEnv beyond the chunks = %v, want ErrPayloadTooLong", err)
	}
}

func TestFindPayload(t *testing.T) {
	chunked, err := PayloadEnv(strings.Repeat("x", MaxInline+5))
	if err != nil {
		t.Fatal(err)
	}
	with := func(name, value string) map[string]string {
		env := maps.Clone(chunked)
		env[name] = value
		return env
	}
	for _, tt := range []struct {
		name      string
		env       map[string]string
		got, want string
	}{
		{"nothing", nil, "", "no payload"},
		{"empty", map[string]string{EnvPayload: ""}, "", "no payload"},
		{"old name", map[string]string{EnvOldPayload: "p"}, "p", ""},
		{"new beats old", map[string]string{EnvOldPayload: "p", EnvPayload: "q"}, "q", ""},
		{"two carriers", with(EnvPayload, "q"), "", "want one carrier"},
		{"count", with(EnvPayloadChunks, "17"), "", `got "17", want 1 to 16`},
		{"no number", with(EnvPayloadChunks, "two"), "", `got "two"`},
		{"missing chunk", with("KERNELBOT_PAYLOAD_1", ""), "", "KERNELBOT_PAYLOAD_1 is not set, want 2 chunks"},
		{"damaged", with("KERNELBOT_PAYLOAD_1", "xxxxy"), "", "the 2 chunks have SHA-256"},
		{"no digest", with(EnvPayloadSHA256, ""), "", "the 2 chunks have SHA-256"},
	} {
		got, err := find(tt.env)
		if got != tt.got || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: FindPayload = %q, %v; want %q, %q", tt.name, got, err, tt.got, tt.want)
		}
	}
}

func TestReplacePayload(t *testing.T) {
	for _, tt := range []struct {
		old, text string
		vars      int
	}{
		{"abcdef", "x", 1}, {"abcdef", "abcdeg", 1},
		{strings.Repeat("a", 2*MaxInline+1), strings.Repeat("b", 2*MaxInline+1), 4},
		{strings.Repeat("a", 2*MaxInline+1), "four", 4},
		{strings.Repeat("a", 2*MaxInline+1), "b", 4},
	} {
		env, err := PayloadEnv(tt.old)
		if err != nil {
			t.Fatal(err)
		}
		lookup := func(k string) (string, bool) { v, ok := env[k]; return v, ok }
		changed, err := ReplacePayload(lookup, tt.text)
		if err != nil || len(changed) != tt.vars {
			t.Fatalf("ReplacePayload(%d characters, %.10q) = %d variables, %v", len(tt.old), tt.text, len(changed), err)
		}
		for name := range changed {
			if _, had := env[name]; !had {
				t.Errorf("%.10q: %s is new", tt.text, name)
			}
		}
		maps.Copy(env, changed)
		if got, err := find(env); strings.TrimSpace(got) != tt.text || err != nil {
			t.Errorf("after ReplacePayload(%.10q): %d characters, %v", tt.text, len(got), err)
		}
		if _, err := ReplacePayload(lookup, strings.Repeat("c", len(tt.old)+50)); err == nil {
			t.Errorf("%.10q: a longer text is taken", tt.text)
		}
	}
	old := map[string]string{EnvOldPayload: "abc"}
	changed, err := ReplacePayload(func(k string) (string, bool) { v, ok := old[k]; return v, ok }, "x")
	if err != nil || !maps.Equal(changed, map[string]string{EnvOldPayload: "x"}) {
		t.Errorf("the old name: %v, %v", changed, err)
	}
	if _, err := ReplacePayload(func(string) (string, bool) { return "", false }, ""); !errors.Is(err, ErrNoPayload) {
		t.Errorf("nothing to replace: %v", err)
	}
}
