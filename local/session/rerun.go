package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// watchPeriod is how often --watch looks at the file. Editors replace files, so
// what counts is the content.
const watchPeriod = 250 * time.Millisecond

// Rerun runs the pipeline whenever its file has changed, until interrupted, and
// ends as the last run did.
func (r *Run) Rerun(ctx context.Context, text []byte) error {
	for {
		vars, err := r.Vars() // an --env-file may have changed, too
		if err == nil {
			err = r.Once(ctx, text, vars)
		}
		switch {
		case ctx.Err() != nil:
			return err
		case err != nil && !errors.Is(err, ErrNotPassed):
			fmt.Fprintf(r.Stderr, "kblocal: error: %v\n", err)
		}
		fmt.Fprintf(r.Stderr, "kblocal: watching %s, interrupt to stop\n", r.File)
		next, changed := r.awaitChange(ctx, text)
		if !changed {
			return err
		}
		text = next
	}
}

// awaitChange returns the file's next content, and false when ctx ends before.
func (r *Run) awaitChange(ctx context.Context, text []byte) ([]byte, bool) {
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, false
		}
		// A file that is missing or empty is being written.
		next, err := os.ReadFile(r.File)
		if err == nil && len(bytes.TrimSpace(next)) > 0 && !bytes.Equal(next, text) {
			return next, true
		}
	}
}
