// Popcorn hands a file in as popcorn-cli does, and waits for what becomes of it:
//
//	popcorn URL BOARD GPU MODE FILE
//
// The CLI id is taken from POPCORN_CLI_ID. The demo uses it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/gpu-mode/kbgen/internal/popcorn"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "popcorn: error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 5 {
		return errors.New("usage: popcorn URL BOARD GPU MODE FILE")
	}
	code, err := os.ReadFile(args[4])
	if err != nil {
		return err
	}
	c := popcorn.Client{URL: args[0], CLIID: os.Getenv("POPCORN_CLI_ID"), Poll: time.Second / 2}
	s, err := c.Run(ctx, args[1], args[2], args[3], args[4], code)
	if err != nil {
		return err
	}
	for _, r := range s.Runs {
		kind, how := "public", "failed"
		if r.Secret {
			kind = "secret"
		}
		if r.Passed {
			how = "passed"
		}
		fmt.Printf("submission %d: %s %s on %s: %s\n", s.ID, kind, r.Mode, r.Runner, how)
	}
	return nil
}
