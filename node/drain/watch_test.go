package drain

import (
	"context"
	"errors"
	"testing"
)

func TestBrokenTakesTwoLooks(t *testing.T) {
	fault := errors.New("the driver shows no device")
	for _, c := range []struct {
		name  string
		looks []error
		want  error
	}{
		{"in order", []error{nil}, nil},
		{"once", []error{fault, nil}, nil},
		{"twice", []error{fault, fault}, fault},
	} {
		looks := 0
		got := broken(t.Context(), 0, func(context.Context) error { looks++; return c.looks[looks-1] })
		if got != c.want || looks != len(c.looks) {
			t.Errorf("%s: got %v after %d looks, want %v after %d", c.name, got, looks, c.want, len(c.looks))
		}
	}
	// systemd ends nvidia-smi and who asked it at once.
	for at := 1; at <= 2; at++ {
		ctx, cancel := context.WithCancel(t.Context())
		looks := 0
		if err := broken(ctx, 0, func(context.Context) error {
			if looks++; looks == at {
				cancel()
			}
			return fault
		}); err != nil {
			t.Errorf("ended in look %d: %v, want no fault", at, err)
		}
	}
}
