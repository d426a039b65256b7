package backend_test

import (
	"testing"

	"github.com/gpu-mode/kbgen/server/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }
