package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

// watchPeriod is how often --watch looks at the file. Editors replace files, so
// what counts is the content.
const watchPeriod = 250 * time.Millisecond

// rerun runs the pipeline whenever its file has changed, until interrupted, and
// ends as the last run did.
func (c *runCmd) rerun(ctx context.Context, env *cli.Env, s *session, text []byte) error {
	for {
		vars, err := c.variables(env) // an --env-file may have changed, too
		if err == nil {
			err = c.once(ctx, env, s, text, vars)
		}
		var ended *cli.ExitError
		switch {
		case ctx.Err() != nil:
			return err
		case err != nil && !errors.As(err, &ended):
			fmt.Fprintf(env.Stderr, "kblocal: error: %v\n", err)
		}
		fmt.Fprintf(env.Stderr, "kblocal: watching %s, interrupt to stop\n", c.File)
		next, changed := c.awaitChange(ctx, text)
		if !changed {
			return err
		}
		text = next
	}
}

// awaitChange returns the file's next content, and false when ctx ends before.
func (c *runCmd) awaitChange(ctx context.Context, text []byte) ([]byte, bool) {
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, false
		}
		// A file that is missing or empty is being written.
		next, err := os.ReadFile(c.File)
		if err == nil && len(bytes.TrimSpace(next)) > 0 && !bytes.Equal(next, text) {
			return next, true
		}
	}
}
