package plan

import (
	"maps"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema/queuefile"
)

func TestDigestsOfTheQueueFileAreInTheConfig(t *testing.T) {
	in := input(t, "nvidia-1")
	p, err := Make(in)
	if err != nil || p.Config.Digests != nil || p.Config.AllowTags {
		t.Fatalf("without images: %v, digests %v, tags allowed %t", err, p.Config.Digests, p.Config.AllowTags)
	}
	digest := "sha256:" + strings.Repeat("0", 64)
	in.File.Images, in.File.AllowTags = []queuefile.Image{{Reference: "kbgen-runner:cuda", Digest: digest}}, true
	p, err = Make(in)
	if want := map[string]string{"kbgen-runner:cuda": digest}; err != nil || !maps.Equal(p.Config.Digests, want) || !p.Config.AllowTags {
		t.Errorf("Make: %v, digests %v, tags allowed %t; want %v", err, p.Config.Digests, p.Config.AllowTags, want)
	}
}
