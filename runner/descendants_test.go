package runner

import (
	"os"
	"testing"
)

func TestReadStat(t *testing.T) {
	p, ok := readStat(os.Getpid())
	if !ok || p.parent != os.Getppid() || p.name == "" {
		t.Errorf("readStat(own) = %+v, %v; parent is %d", p, ok, os.Getppid())
	}
}
