package templates

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata from what the templates give")

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func runnerOf(t *testing.T, kind RunnerKind) Runner {
	t.Helper()
	r, err := NewRunner(kind)
	if err != nil {
		t.Fatal(err)
	}
	if kind == CPU {
		r.Base = "kbgen-base:bookworm"
	}
	r.Version = "0.1.0"
	return r
}

func TestRunnerGoldens(t *testing.T) {
	for _, kind := range runnerKinds() {
		t.Run(string(kind), func(t *testing.T) {
			r := runnerOf(t, kind)
			if kind == ROCm { // one golden shows the optional placeholders
				r.Digest, r.Revision = digest, strings.Repeat("0a", 20)
			}
			got, err := r.Dockerfile()
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "runner", string(kind)+".Dockerfile")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("Dockerfile(%s) (-want +got):\n%s", kind, diff)
			}
		})
	}
}

// What must hold of every image, whatever its golden says.
func TestRunnerImagesAreSafe(t *testing.T) {
	secret := regexp.MustCompile(`(?i)token|secret|password|api_key|credential|--mount=type=ssh`)
	for _, kind := range runnerKinds() {
		text, err := runnerOf(t, kind).Dockerfile()
		if err != nil {
			t.Fatal(err)
		}
		last := map[string]string{}
		for line := range strings.Lines(string(text)) {
			word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasPrefix(word, "#") {
				continue
			}
			last[word] = rest
			if secret.MatchString(line) {
				t.Errorf("%s: %q speaks of a secret", kind, line)
			}
			if (word == "COPY" || word == "ADD") && rest != "kbrun kbrun-nvml* /usr/local/bin/" {
				t.Errorf("%s: %q: only kbrun and its probe are copied in", kind, line)
			}
			if strings.Contains(line, ":latest") {
				t.Errorf("%s: %q follows a moving tag", kind, line)
			}
		}
		if last["USER"] != "65534:65534" || last["ENTRYPOINT"] != "[]" || last["WORKDIR"] != "/workdir" {
			t.Errorf("%s: USER %q, ENTRYPOINT %q, WORKDIR %q", kind, last["USER"], last["ENTRYPOINT"], last["WORKDIR"])
		}
		if kind != CPU && last["FROM"] != "${BASE}@${BASE_DIGEST}" {
			t.Errorf("%s: FROM %s, want it pinned by a digest", kind, last["FROM"])
		}
		if kind == CUDA && !strings.Contains(string(text), "NVIDIA_VISIBLE_DEVICES=void") {
			t.Errorf("%s: the base's NVIDIA_VISIBLE_DEVICES=all is left in place", kind)
		}
	}
}

func TestRunnerRefuses(t *testing.T) {
	for _, tt := range []struct {
		placeholder string
		kind        RunnerKind
		change      func(*Runner)
	}{
		{"Kind", CUDA, func(r *Runner) { r.Kind = "tpu" }},
		{"Base", CUDA, func(r *Runner) { r.Base = "nvidia/cuda" }},
		{"Base", CUDA, func(r *Runner) { r.Base = "nvidia/cuda:latest" }},
		{"Base", CUDA, func(r *Runner) { r.Base = "nvidia/cuda:13\nRUN true" }},
		{"Base", CUDA, func(r *Runner) { r.Base = "$X:1" }},
		{"Base", CPU, func(r *Runner) { r.Base = "" }},
		{"Base", CPU, func(r *Runner) { r.Base = "a b" }},
		{"Digest", ROCm, func(r *Runner) { r.Digest = "sha256:12" }},
		{"Digest", CPU, func(r *Runner) { r.Digest = digest }},
		{"Torch", CUDA, func(r *Runner) { r.Torch = "" }},
		{"Torch", CUDA, func(r *Runner) { r.Torch = "2.11.0 evil" }},
		{"Torch", CPU, func(r *Runner) { r.Torch = "2.11.0" }},
		{"TorchIndex", CUDA, func(r *Runner) { r.TorchIndex = "http://example.org/whl" }},
		{"TorchIndex", CUDA, func(r *Runner) { r.TorchIndex = "https://user:pass@example.org/whl" }},
		{"Version", ROCm, func(r *Runner) { r.Version = "" }},
		{"Version", ROCm, func(r *Runner) { r.Version = "1\" evil=\"" }},
		{"Revision", ROCm, func(r *Runner) { r.Revision = "main" }},
	} {
		r := runnerOf(t, tt.kind)
		tt.change(&r)
		text, err := r.Dockerfile()
		var placeholder *PlaceholderError
		if !errors.As(err, &placeholder) || placeholder.Name != tt.placeholder || text != nil {
			t.Errorf("Dockerfile(%+v) = %d bytes, %v, want an error about %s", r, len(text), err, tt.placeholder)
		}
	}
	if _, err := NewRunner("tpu"); err == nil {
		t.Error(`NewRunner("tpu") returned no error`)
	}
}

// The script parses, and refuses to guess where to write.
func TestRootfsScript(t *testing.T) {
	text, err := Rootfs()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rootfs.sh")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", "-n", file).CombinedOutput(); err != nil {
		t.Errorf("sh -n: %v\n%s", err, out)
	}
	if out, err := exec.Command("sh", file).CombinedOutput(); err == nil || !strings.Contains(string(out), "usage") {
		t.Errorf("without arguments: %v, %q, want its usage", err, out)
	}
	// It names no host: the mirror is the machine's own, or is given.
	if host := regexp.MustCompile(`https?://|[a-z]\.(org|com|net|io)\b`).Find(text); host != nil {
		t.Errorf("the script names the host %q", host)
	}
}
