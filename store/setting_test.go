package store

import (
	"bytes"
	"context"
	"sync"
	"testing"
)

func TestSettingsAreForAllInstances(t *testing.T) {
	bothShared(t, func(t *testing.T, a, b *Store) {
		ctx := context.Background()
		for _, want := range []bool{true, false, true} {
			if err := a.SetAccepting(ctx, want); err != nil {
				t.Fatal(err)
			}
			if got, err := b.Accepting(ctx); err != nil || got != want {
				t.Errorf("Accepting = %t, %v; want %t", got, err, want)
			}
		}
		var mu sync.Mutex
		var wait sync.WaitGroup
		var secrets [][]byte
		for i := range 8 {
			wait.Go(func() {
				secret, err := []*Store{a, b}[i%2].Secret(ctx, "signing")
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				secrets = append(secrets, secret)
			})
		}
		wait.Wait()
		for _, secret := range secrets {
			if len(secret) != 32 || !bytes.Equal(secret, secrets[0]) || bytes.Count(secret, secret[:1]) > 16 {
				t.Fatal("several who asked first have several secrets, or none")
			}
		}
		if other, err := a.Secret(ctx, "other"); err != nil || bytes.Equal(other, secrets[0]) {
			t.Errorf("another name has the same secret, %v", err)
		}
	})
}

func TestSubmissionsAreAcceptedUntilSomebodySaysNo(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		if got, err := s.Accepting(context.Background()); err != nil || !got {
			t.Errorf("Accepting = %t, %v", got, err)
		}
	})
}
