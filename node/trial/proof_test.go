package trial

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/runner"
)

// TestKeepProof: a proof from a job is stored under a safe name, in a file that belongs
// to the caller. A symbolic link in place of the job's file is refused.
func TestKeepProof(t *testing.T) {
	dir := t.TempDir()
	p, err := keepProof(dir, []byte(`{"uuid": "GPU-1", "checks": [{"name": "channel", "ok": true}], "unknown": 1}`))
	if err != nil || p.Failed() != "" {
		t.Fatalf("%+v, %v", p, err)
	}
	got, err := runner.ReadProof(filepath.Join(dir, "GPU-1.json"), uint32(os.Getuid()))
	if err != nil || got.UUID != "GPU-1" || len(got.Checks) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, raw := range []string{"", "[]", `{"uuid": ""}`, `{"uuid": "../x"}`, `{"uuid": "a/b"}`} {
		if _, err := keepProof(dir, []byte(raw)); err == nil || !strings.Contains(err.Error(), "no proof") {
			t.Errorf("%s: %v", raw, err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "GPU-1.json"), link); err != nil {
		t.Fatal(err)
	}
	if _, err := readJobFile(link); err == nil {
		t.Error("a link was followed")
	}
}
