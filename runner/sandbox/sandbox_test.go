package sandbox

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

func TestProbeSmoke(t *testing.T) {
	b, err := Open(Options{Dir: t.TempDir(), Environ: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, a := range b.Probe() {
		t.Logf("%s: %+v %s", a.Means, a.Got, a.Why)
	}
}
