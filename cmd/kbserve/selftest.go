package main

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/examples"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/selftest"
	"github.com/gpu-mode/kbgen/store"
)

type selftestCmd struct {
	place    `embed:""`
	URL      string        `name:"url" var:"KBSERVE_URL" default:"http://127.0.0.1:8080" placeholder:"URL" help:"the address of the server"`
	GPU      string        `name:"gpu" placeholder:"NAME" help:"the GPU type"`
	Mode     string        `default:"leaderboard" placeholder:"MODE" help:"test, benchmark, profile or leaderboard"`
	Task     string        `default:"vectoradd_py" placeholder:"NAME" help:"an example, see kblaunch examples"`
	Timeout  time.Duration `default:"30m" placeholder:"TIME" help:"how long the test may take"`
	Interval time.Duration `default:"2s" hidden:""` // between two looks
	Cleanup  bool          `help:"remove all rows that the test made, even if it failed"`
	Remove   string        `placeholder:"BOARD" help:"remove the rows of an earlier selftest"`
}

func (c *selftestCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Remove != "" {
		return c.with(ctx, func(s *store.Store) error { return s.RemoveTest(ctx, c.Remove) })
	}
	if c.GPU == "" {
		return cli.Usagef("missing flags: --gpu=STRING, or --remove=STRING")
	}
	if c.Timeout <= 0 || c.Interval <= 0 {
		return cli.Usagef("--timeout: got %v, want more than 0", c.Timeout)
	}
	if _, ok := examples.Find(c.Task); !ok {
		return cli.Usagef("--task: got %s, want the name of an example, see kblaunch examples", text.Quote(c.Task))
	}
	if _, err := url.Parse(c.URL); err != nil {
		return cli.Usagef("--url: got %s, want http://HOST:PORT or https://HOST", text.Quote(text.Shorten(c.URL, 200)))
	}
	return c.with(ctx, func(s *store.Store) error {
		err := selftest.Run(ctx, selftest.Options{
			Store: s, URL: c.URL, GPU: c.GPU, Mode: c.Mode, Task: c.Task, Timeout: c.Timeout, Interval: c.Interval, Cleanup: c.Cleanup, Out: env.Stdout, Err: env.Stderr,
		})
		var hinted *selftest.Error
		if errors.As(err, &hinted) {
			return cli.WithHint(err, "%s", hinted.Hint)
		}
		return err
	})
}
