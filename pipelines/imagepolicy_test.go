package pipelines

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

// ask makes the request of a build for evaluate with these variables.
func ask(c Choice, env map[string]string) (Request, error) {
	p, err := Find("evaluate")
	if err != nil {
		return Request{}, err
	}
	return NewRequest(p, c, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
}

func TestImagesThatABuildMayName(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0f", 32)
	for ref, why := range map[string]string{
		"ghcr.io/gpu-mode/kernelbot:2026-02":                  "",
		"ghcr.io/gpu-mode/kernelbot" + digest:                 "",
		"ghcr.io/gpu-mode/a/b:1" + digest:                     "",
		"ghcr.io/gpu-mode/kernelbot:latest":                   "is not pinned",
		"ghcr.io/gpu-mode/kernelbot":                          "is not pinned",
		"ghcr.io/gpu-mode/kernelbot:$TAG":                     "is not pinned",
		"ghcr.io/gpu-mode/kernelbot:1\nprivileged: y":         "is not pinned",
		"ghcr.io/gpu-mode-evil/kernelbot:1":                   "is from a place that builds may not name, have ghcr.io/gpu-mode/",
		"docker.io/gpu-mode/kernelbot:1":                      "is from a place that builds may not name",
		"kernelbot:1":                                         "is from a place that builds may not name",
		"evil.example/ghcr.io/gpu-mode/kernelbot:1":           "is from a place that builds may not name",
		"ghcr.io/gpu-mode/../evil/kernelbot:1":                "is no name of an image",
		"ghcr.io/gpu-mode//kernelbot:1":                       "is no name of an image",
		"ghcr.io/gpu-mode/" + strings.Repeat("a", 400) + ":1": "is not pinned",
		"ghcr.io:443/gpu-mode/kernelbot:1":                    "is from a place that builds may not name",
	} {
		env := map[string]string{schema.EnvGPU: "H100_BK", schema.EnvImage: ref}
		r, err := ask(Choice{}, env)
		if err != nil {
			t.Errorf("image %q: %v, want no build to fail for it", ref, err)
			continue
		}
		switch {
		case why == "" && (r.Image != ref || len(r.Notes) != 0):
			t.Errorf("image %q: got image %q and notes %q, want it", ref, r.Image, r.Notes)
		case why != "" && (r.Image != "" || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, why) || r.Notes[0].About != "image"):
			t.Errorf("image %q: got image %q and notes %q, want the row's own and %q", ref, r.Image, r.Notes, why)
		case why != "" && (strings.Contains(r.Notes[0].Text, "\n") || len(r.Notes[0].Text) > 500):
			t.Errorf("image %q: note %q, want one line", ref, r.Notes[0].Text)
		}
		if _, err := ask(Choice{RefuseImages: true}, env); (err != nil) != (why != "") || err != nil && (!errors.Is(err, ErrImage) || !strings.Contains(err.Error(), why)) {
			t.Errorf("image %q with refuse: %v, want an error %v with %q", ref, err, why != "", why)
		}
	}
}

// What a row cannot use costs no build, and a person's flag is held to being
// pinned alone.
func TestImageOfRowsAndPeople(t *testing.T) {
	latest, foreign := "ghcr.io/gpu-mode/kernelbot:latest", "registry.example/kb:1"
	r, err := ask(Choice{}, map[string]string{schema.EnvGPU: "CPU_BK", schema.EnvImage: latest})
	if err != nil || r.Image != "" || len(r.Notes) != 1 || r.Notes[0].About != "" || !strings.Contains(r.Notes[0].Text, "CPU_BK runs in no container") {
		t.Errorf("CPU_BK with an image: %q, %+v, %v, want a line in the log", r.Image, r.Notes, err)
	}
	r, err = ask(Choice{}, map[string]string{schema.EnvGPU: "H100_BK,MI300_BK", schema.EnvImage: "ghcr.io/gpu-mode/kernelbot:1"})
	if err != nil || r.Image != "" || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, "several vendors") {
		t.Errorf("one image for two vendors: %q, %+v, %v, want the rows' own", r.Image, r.Notes, err)
	}
	if r, err = ask(Choice{Image: &foreign, GPUs: []string{"H100_BK"}}, nil); err != nil || r.Image != foreign {
		t.Errorf("--image %s: %q, %v, want it", foreign, r.Image, err)
	}
	if _, err = ask(Choice{Image: &latest, GPUs: []string{"H100_BK"}}, nil); !errors.Is(err, ErrImage) {
		t.Errorf("--image %s: %v, want it refused", latest, err)
	}
}

func TestImageSources(t *testing.T) {
	for _, s := range ImageSources {
		if s.Name == "" || s.Name == "/" || strings.ToLower(s.Name) != s.Name || !strings.Contains(s.Name, "/") {
			t.Errorf("source %q, want a repository, or what it lies below", s.Name)
		}
	}
	own := ImageSource{Name: "ghcr.io/a/b"}
	if !own.takes("ghcr.io/a/b") || own.takes("ghcr.io/a/b/c") || own.takes("ghcr.io/a/bc") {
		t.Error("a repository takes others than itself")
	}
	saved := ImageSources
	t.Cleanup(func() { ImageSources = saved })
	ImageSources = []ImageSource{{Name: "registry.example/", DigestOnly: true}}
	if why := imageRefusal("registry.example/kb:1", nil); !strings.Contains(why, "want a sha256 digest from there") {
		t.Errorf("a tag from a place of digests: %q", why)
	}
	if why := imageRefusal("registry.example/kb@sha256:"+strings.Repeat("0f", 32), nil); why != "" {
		t.Errorf("a digest from a place of digests: %q", why)
	}
}
