package zzglob

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		pattern string
		yes, no []string
	}{
		{`go.mod`, []string{"go.mod"}, []string{"go_mod", "a/go.mod", "go.modx", ""}},
		{`log?.out`, []string{"log1.out", "logé.out"}, []string{"log.out", "log12.out", "log/.out"}},
		{`*.go`, []string{"a.go", ".go", ".a.go"}, []string{"a/b.go", "a.got"}},
		{`a/*`, []string{"a/b", "a/.b"}, []string{"a", "a/b/c", "b/a"}},
		{`a/**`, []string{"a/b", "a/b/c", "a/.b/.c"}, []string{"a", "ab/c", "b/a/c"}},
		{`**`, []string{"a", "a/b", "/a/b"}, nil},
		{`**.go`, []string{"a.go", "a/b.go", "a/b/.go"}, []string{"a/b.got"}},
		{`**/*.go`, []string{"a.go", "a/b.go", "a/b/.go"}, []string{"a/b.got"}},
		{`a/**/b/*`, []string{"a/b/x", "a/1/2/b/x", "a/b/b/x"}, []string{"a/b", "a/1/b/2/x", "b/x"}},
		{`a/**/**/b`, []string{"a/b", "a/1/b", "a/1/2/b"}, []string{"ab"}},
		{`a**z`, []string{"az", "a/z", "abz", "ab/c/yz"}, []string{"a", "ab/z/c", "ba/z"}},
		{`a**/z`, []string{"a/z", "ab/z", "ab/c/z"}, []string{"az", "b/z"}},
		{`**{/x,.y}`, []string{"x", "a/x", "a/b.y", ".y"}, []string{"ax", "y"}},
		{`a{**,}b/{**/,}c`, []string{"ab/c", "a/b/c", "axb/1/2/c"}, []string{"ab", "bc", "ab/xc"}},
		{`a***/***`, []string{"a/b", "ax/y/b/c"}, []string{"a", "ab"}},
		{`a/***`, []string{"a/b/c"}, []string{"a"}},
		{`{foo,bar}.go`, []string{"foo.go", "bar.go"}, []string{"foobar.go", "{foo,bar}.go"}},
		{`foo{,bar}.go`, []string{"foo.go", "foobar.go"}, []string{"foobarbar.go"}},
		{`{foo/**.go,fix/**}`, []string{"foo/a.go", "foo/a/b.go", "fix/x"}, []string{"foo/x", "fix"}},
		{`{a,b{c,d/*}}`, []string{"a", "bc", "bd/x"}, []string{"b", "ac", "bd"}},
		{`{a\,b,c}`, []string{"a,b", "c"}, []string{"a", "b"}},
		{`{*,x}*.go`, []string{"a.go"}, []string{"a/b.go"}},
		{`a,b`, []string{"a,b"}, []string{"a", "b"}},
		{`side[AB]`, []string{"sideA", "sideB"}, []string{"sideC", "side", "sideAB"}},
		{`[c-g]`, []string{"c", "-", "g"}, []string{"d"}},
		{`[!a]`, []string{"!", "a"}, []string{"b"}},
		{`x[^789]?`, []string{"x1a", "xéé"}, []string{"x7a", "x/a", "x1"}},
		{`[\]\^]`, []string{"]", "^"}, []string{`\`}},
		{`[{,}]`, []string{"{", ",", "}"}, []string{"a"}},
		{`\*\?\[a\]\{b\}\\`, []string{`*?[a]{b}\`}, []string{`xx[a]{b}\`}},
		{`\é`, []string{"é"}, []string{`\é`}},
		{`/abs/*.log`, []string{"/abs/x.log"}, []string{"abs/x.log", "//abs/x.log"}},
		{`a b #%é/*`, []string{"a b #%é/ñ 1%20#.txt"}, []string{"a b"}},
		{"*\xff*", []string{"a\xffb"}, []string{"ab"}},
		{`x~/y~`, []string{"x~/y~"}, []string{"x/y"}},
		{`~x`, []string{"~x"}, nil},
		{`\~/x`, []string{"~/x"}, nil},
	} {
		p, err := Parse(tc.pattern)
		if err != nil {
			t.Errorf("Parse(%q): %v", tc.pattern, err)
			continue
		}
		for _, s := range tc.yes {
			if !p.Match(s) {
				t.Errorf("Parse(%q).Match(%q) = false, want true", tc.pattern, s)
			}
		}
		for _, s := range tc.no {
			if p.Match(s) {
				t.Errorf("Parse(%q).Match(%q) = true, want false", tc.pattern, s)
			}
		}
	}
}

func TestTilde(t *testing.T) {
	home := filepath.Join(t.TempDir(), "*{h}")
	t.Setenv("HOME", home)
	for _, tc := range []struct {
		pattern string
		expand  bool
		path    string
	}{
		{"~/x", true, home + "/x"},
		{"~", true, home},
		{"~/x", false, "~/x"},
	} {
		p, err := Parse(tc.pattern, ExpandTilde(tc.expand))
		if err != nil {
			t.Fatal(err)
		}
		if !p.Match(tc.path) {
			t.Errorf("Parse(%q, ExpandTilde(%v)).Match(%q) = false, want true", tc.pattern, tc.expand, tc.path)
		}
	}
	os.Unsetenv("HOME")
	if _, err := Parse("~/x"); err == nil {
		t.Error("Parse(~/x) without a home = nil, want an error")
	}
}

func TestParseRefuses(t *testing.T) {
	for pattern, want := range map[string]string{
		`bar/**/[asdf[[[[asdf`:      "[ without ]",
		`[]`:                        "no character",
		`[^]`:                       "no character",
		`[a/b]`:                     "/ between",
		`{a,b`:                      "{ without }",
		`{a,{b}`:                    "{ without }",
		`a}`:                        "} without {",
		`{a,[b}`:                    "[ without ]",
		`a\`:                        `\ at the end`,
		"a\x00b":                    "NUL",
		strings.Repeat("{a,b}", 13): "4096",
		strings.Repeat("a**", 64):   "4096",
	} {
		if p, err := Parse(pattern); err == nil || !strings.Contains(err.Error(), want) || p != nil {
			t.Errorf("Parse(%q) = %v, %v, want an error with %q", pattern, p, err, want)
		}
	}
}

// Whatever parses, a name in which every syntax character is escaped matches
// itself and nothing but itself.
func FuzzEscape(f *testing.F) {
	f.Add("a/{b,c}/**[x]~", "a/b")
	f.Add("~", "/root")
	f.Fuzz(func(t *testing.T, name, other string) {
		p, err := Parse(escape(name))
		if err != nil {
			if !strings.Contains(name, "\x00") {
				t.Fatalf("Parse(escape(%q)): %v", name, err)
			}
			return
		}
		if clean := filepath.Clean(name); clean == name && name != "/" && !p.Match(name) {
			t.Errorf("the escaped %q does not match itself", name)
		}
		if filepath.Clean(other) != filepath.Clean(name) && p.Match(other) && strings.TrimRight(name, "/") != other {
			t.Errorf("the escaped %q matches %q", name, other)
		}
	})
}

// Parse never panics, and neither does what it returns.
func FuzzParse(f *testing.F) {
	f.Add(`{a,**/b*}[^x]\?`, "c/bd")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		p, err := Parse(pattern, ExpandTilde(false))
		if (p == nil) == (err == nil) {
			t.Fatalf("Parse(%q) = %v, %v", pattern, p, err)
		}
		if p != nil {
			p.Match(path)
			p.roots()
		}
	})
}
