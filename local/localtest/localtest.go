// Package localtest starts Buildkite's stand-in for tests.
package localtest

import (
	"context"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/local"
)

// patience bounds the wait for the stand-in's end.
const patience = 5 * time.Minute

// Start starts a stand-in, which is closed with the test.
func Start(t testing.TB, o local.Options) *local.Server {
	t.Helper()
	s, err := local.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("closing the stand-in: %v", err)
		}
	})
	return s
}
