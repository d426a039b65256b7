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

func TestImagesThatCannotBePulledAreNoted(t *testing.T) {
	const image = "kbgen-runner:cuda"
	digest := "sha256:" + strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		image  string // of the row
		change func(*queuefile.File)
		want   int // notes
	}{
		"tag alone":            {image, func(*queuefile.File) {}, 1},
		"tags allowed":         {image, func(f *queuefile.File) { f.AllowTags = true }, 0},
		"digest in queue file": {image, func(f *queuefile.File) { f.Images = []queuefile.Image{{Reference: image, Digest: digest}} }, 0},
		"digest of another":    {image, func(f *queuefile.File) { f.Images = []queuefile.Image{{Reference: "x:1", Digest: digest}} }, 1},
		"digest in the row":    {"kbgen-runner@" + digest, func(*queuefile.File) {}, 0},
	} {
		in := input(t, "nvidia-8")
		in.Rows = maps.Clone(in.Rows)
		for name, row := range in.Rows {
			if row.Platform == Docker {
				row.Image = c.image
				in.Rows[name] = row
			}
		}
		c.change(in.File)
		p, err := Make(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := strings.Count(strings.Join(p.Notes, "\n"), "image "+c.image+" has no digest"); got != c.want {
			t.Errorf("%s: %d notes of the image, want %d: %q", name, got, c.want, p.Notes)
		}
	}
}
