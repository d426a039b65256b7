package trial

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
)

// A slot whose agent does not start would be waited for until the time is up.
func TestVerifyTriesSlotsWhoseAgentsStart(t *testing.T) {
	root := t.TempDir()
	slot := func(name, platform string) *node.Slot {
		return &node.Slot{Name: name, Platform: platform, Images: map[string][]string{"docker": {"i:" + name}}[platform]}
	}
	all := []*node.Slot{slot("gpu0", "docker"), slot("gpu1", "docker"), slot("gpu2", "docker"), slot("cpu0", "host")}
	pins := &node.Pins{Images: map[string]node.Pin{"i:gpu0": {ID: "sha256:1"}, "i:gpu2": {ID: "sha256:1"}}}
	paused := filepath.Join(root, all[2].Paused())
	if err := errors.Join(os.MkdirAll(filepath.Dir(paused), 0o755), os.WriteFile(paused, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	can, cannot := provable(root, all, pins)
	if len(can) != 2 || can[0].Name != "gpu0" || can[1].Name != "cpu0" {
		t.Errorf("tries %v, want gpu0 and cpu0", can)
	}
	if len(cannot) != 2 || cannot[0].Code != "image" || cannot[0].State != doctor.Failure || cannot[1].Code != "paused" || cannot[1].State != doctor.Skipped {
		t.Errorf("got %+v, want no image on gpu1, gpu2 paused", cannot)
	}
}

// A slot's proxy removes a container before it makes another.
func TestDeepLeavesJobsAlone(t *testing.T) {
	m := doctor.Machine{Get: func(_ context.Context, url string) (int, []byte, error) {
		switch url {
		case "http://127.0.0.1:1/status.json":
			return 200, []byte(`{"aggregate_status":"busy","workers":[{"current_job_id":"j1"}]}`), nil
		case "http://127.0.0.1:2/status.json":
			return 200, []byte(`{"aggregate_status":"idle","workers":[{}]}`), nil
		}
		return 0, nil, errors.New("connection refused")
	}}
	var slots []*node.Slot
	for i, name := range []string{"gpu0", "gpu1", "gpu2", "gpu3"} {
		slots = append(slots, &node.Slot{Name: name, Platform: "docker", HealthPort: i + 1})
	}
	slots[3].Platform = "host"
	free, busy := idle(t.Context(), m, slots)
	if len(free) != 2 || free[0].Name != "gpu1" || free[1].Name != "gpu2" {
		t.Errorf("tries %v, want gpu1 and gpu2", free)
	}
	if len(busy) != 1 || busy[0].Slot != "gpu0" || busy[0].State != doctor.Skipped {
		t.Errorf("got %+v, want gpu0 skipped", busy)
	}
}
