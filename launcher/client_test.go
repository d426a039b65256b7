package launcher

import (
	"strings"
	"testing"
)

func TestStrangeIdsMakeNoPath(t *testing.T) {
	t.Parallel()
	c := newFake(t).client()
	for _, id := range []string{"", "../x", "a/b", "a?b", "a#b", "%2e", strings.Repeat("a", 101)} {
		if path, err := c.buildPath(1, "jobs", id); err == nil {
			t.Errorf("buildPath(%q): got %q, want an error", id, path)
		}
	}
	if _, err := c.buildPath(0); err == nil {
		t.Error("buildPath(0): got no error")
	}
}

func TestNewChecksItsOptions(t *testing.T) {
	t.Parallel()
	good := Options{BaseURL: "https://api.buildkite.com/", Token: "t", Org: "gpu-mode", Pipeline: "kernelbot"}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Options){
		"no API token":  func(o *Options) { o.Token = "" },
		"organization":  func(o *Options) { o.Org = "a/b" },
		"pipeline":      func(o *Options) { o.Pipeline = "../x" },
		"want https":    func(o *Options) { o.BaseURL = "http://api.example.com/" },
		"final v2/":     func(o *Options) { o.BaseURL = "https://api.buildkite.com/v2" },
		"scheme, host":  func(o *Options) { o.BaseURL = "https://me:pw@api.buildkite.com/" },
		"path only, as": func(o *Options) { o.BaseURL = "api.buildkite.com" },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: got %v, want %q", err, want)
		}
	}
	c, err := New(Options{BaseURL: "http://127.0.0.1:1/api", Token: "t", Org: "o", Pipeline: "p"})
	if err != nil || c.base.Path != "/api/" {
		t.Errorf("New with a path: got %v, %v, want /api/", c.base, err)
	}
}
