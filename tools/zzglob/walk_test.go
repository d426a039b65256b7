package zzglob

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// tree makes the files, and links as "name -> target", in a new directory and
// goes there.
func tree(t *testing.T, files []string, links map[string]string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// walk returns the paths that reach the callback, in order; those that come
// with an error end in "!".
func walk(t *testing.T, pattern string, opts ...GlobOption) []string {
	t.Helper()
	p, err := Parse(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = p.Glob(func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			path += "!"
		}
		got = append(got, path)
		return nil
	}, opts...)
	if err != nil {
		t.Fatalf("Glob(%q): %v", pattern, err)
	}
	return got
}

func TestGlob(t *testing.T) {
	dir := tree(t, []string{
		"a/1.json", "a/.hidden.json", "a/b/2.json", "a/b/c/3.json", "a/b/c/3.txt",
		"b/x.txt", "b/y.txt", "b/z.txt", "ab/1.json", "top.json",
		"odd/a b.txt", "odd/a#b.txt", "odd/100%.txt", "odd/ñé.txt", "odd/*.txt",
	}, nil)
	for _, tc := range []struct {
		pattern string
		want    []string
	}{
		{"top.json", []string{"top.json"}},
		{"./top.json", []string{"top.json"}},
		{"*.json", []string{"top.json"}},
		{"a/**/*.json", []string{"a/.hidden.json", "a/1.json", "a/b/2.json", "a/b/c/3.json"}},
		{"a/**.json", []string{"a/.hidden.json", "a/1.json", "a/b/2.json", "a/b/c/3.json"}},
		{"a**/1.json", []string{"a/1.json", "ab/1.json"}},
		{"a/**", []string{"a/.hidden.json", "a/1.json", "a/b", "a/b/2.json", "a/b/c", "a/b/c/3.json", "a/b/c/3.txt"}},
		{"b/{y,x}.txt", []string{"b/x.txt", "b/y.txt"}},
		{"{b/z,a/b/c/3,,b/[xz]}.txt", []string{"a/b/c/3.txt", "b/x.txt", "b/z.txt"}},
		{"{a,a/b}/**/2.json", []string{"a/b/2.json"}},
		{"{,b/x.txt}", []string{"b/x.txt"}},
		{dir + "/b/[^z].txt", []string{dir + "/b/x.txt", dir + "/b/y.txt"}},
		{"../" + filepath.Base(dir) + "/top.*", []string{"../" + filepath.Base(dir) + "/top.json"}},
		{"odd/*", []string{"odd/*.txt", "odd/100%.txt", "odd/a b.txt", "odd/a#b.txt", "odd/ñé.txt"}},
		{"odd/a?b.txt", []string{"odd/a b.txt", "odd/a#b.txt"}},
		{`odd/\*.txt`, []string{"odd/*.txt"}},
		{"a", []string{"a"}},
		{"a/", []string{"a"}},
		{"nothing", nil},
		{"nothing/**/*", nil},
		{"top.json/*", nil},
		{"*/nothing", nil},
		{"a/*/../*", nil},
	} {
		if got := walk(t, tc.pattern); !slices.Equal(got, tc.want) {
			t.Errorf("Glob(%q) = %q, want %q", tc.pattern, got, tc.want)
		}
	}
}

func TestGlobFromHome(t *testing.T) {
	home := tree(t, []string{"x/1.log"}, nil)
	t.Setenv("HOME", home)
	t.Chdir("/")
	if got, want := walk(t, "~/x/*.log"), []string{home + "/x/1.log"}; !slices.Equal(got, want) {
		t.Errorf("Glob(~/x/*.log) = %q, want %q", got, want)
	}
}

func TestGlobSymlinks(t *testing.T) {
	tree(t, []string{"real/1.txt", "real/sub/2.txt"}, map[string]string{
		"real/circle":   "..",
		"link":          "real",
		"real/file.txt": "1.txt",
		"real/dead.txt": "nowhere",
	})
	for _, tc := range []struct {
		pattern string
		follow  bool
		want    []string
	}{
		{"*/1.txt", false, []string{"real/1.txt"}},
		{"*/1.txt", true, []string{"link/1.txt", "real/1.txt"}},
		{"link/*.txt", false, []string{"link/1.txt", "link/dead.txt", "link/file.txt"}},
		{"*", false, []string{"link", "real"}},
		{"real/**/2.txt", false, []string{"real/sub/2.txt"}},
		// The circle leads to the top, and there only link and real, which is
		// open already, lie below.
		{"real/**/2.txt", true, []string{"real/sub/2.txt"}},
	} {
		if got := walk(t, tc.pattern, TraverseSymlinks(tc.follow)); !slices.Equal(got, tc.want) {
			t.Errorf("Glob(%q, TraverseSymlinks(%v)) = %q, want %q", tc.pattern, tc.follow, got, tc.want)
		}
	}
}

func TestGlobReportsWhatItWalksThrough(t *testing.T) {
	tree(t, []string{"a/b/1.txt", "a/c/2.txt", "a/3.txt"}, nil)
	for pattern, want := range map[string][]string{
		"a/**/1.txt":  {"a", "a/b", "a/b/1.txt", "a/c"},
		"*/*":         {".", "a", "a/3.txt", "a/b", "a/c"},
		"nothing/*":   {"nothing!"},
		"a/3.txt":     {"a/3.txt"},
		"{a,a/b}/1.*": {"a", "a/b", "a/b/1.txt"},
	} {
		if got := walk(t, pattern, WalkIntermediateDirs(true)); !slices.Equal(got, want) {
			t.Errorf("Glob(%q, WalkIntermediateDirs(true)) = %q, want %q", pattern, got, want)
		}
	}
}

func TestGlobReportsUnreadable(t *testing.T) {
	tree(t, []string{"a/b/1.txt", "a/c/2.txt"}, nil)
	if err := os.Chmod("a/b", 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod("a/b", 0o755) })
	if _, err := os.ReadDir("a/b"); err == nil {
		t.Skip("this user reads directories without permission")
	}
	if got, want := walk(t, "a/*/*.txt"), []string{"a/b!", "a/c/2.txt"}; !slices.Equal(got, want) {
		t.Errorf("Glob = %q, want %q", got, want)
	}
	if got, want := walk(t, "a/b/*"), []string{"a/b!"}; !slices.Equal(got, want) {
		t.Errorf("Glob of an unreadable beginning = %q, want %q", got, want)
	}
}

func TestGlobEndsWithTheCallersError(t *testing.T) {
	tree(t, []string{"a/1.txt", "a/2.txt"}, nil)
	p, err := Parse("a/*")
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	calls := 0
	err = p.Glob(func(string, fs.DirEntry, error) error { calls++; return stop })
	if err != stop || calls != 1 {
		t.Errorf("Glob = %v after %d calls, want %v after 1", err, calls, stop)
	}
}

func TestMultiGlob(t *testing.T) {
	tree(t, []string{"a/1.txt", "b/2.txt"}, nil)
	var patterns []*Pattern
	for _, s := range []string{"b/*", "nothing", "**/1.txt", "b/2.txt"} {
		p, err := Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		patterns = append(patterns, p)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	collect := func(path string, d fs.DirEntry, err error) error {
		if d == nil || d.IsDir() || err != nil {
			t.Errorf("callback(%q, %v, %v), want a file", path, d, err)
		}
		got = append(got, path)
		return nil
	}
	if err := MultiGlob(ctx, patterns, collect); err != nil {
		t.Fatal(err)
	}
	if want := []string{"b/2.txt", "a/1.txt", "b/2.txt"}; !slices.Equal(got, want) {
		t.Errorf("MultiGlob = %q, want %q", got, want)
	}
	cancel()
	if err := MultiGlob(ctx, patterns, collect); !errors.Is(err, context.Canceled) {
		t.Errorf("MultiGlob of a cancelled context = %v, want %v", err, context.Canceled)
	}
}
