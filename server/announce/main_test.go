package announce

import (
	"fmt"
	"os"
	"testing"

	"github.com/gpu-mode/kbgen/server/servertest"
)

func TestMain(m *testing.M) {
	status := m.Run()
	if err := servertest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}
