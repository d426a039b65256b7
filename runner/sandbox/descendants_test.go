package sandbox

import (
	"os"
	"testing"
)

func TestReadStat(t *testing.T) {
	p, ok := readStat(os.Getpid(), make([]byte, 512))
	if !ok || p.Parent != os.Getppid() || p.Name == "" {
		t.Errorf("readStat(own) = %+v, %v; parent is %d", p, ok, os.Getppid())
	}
}
