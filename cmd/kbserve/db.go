package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/examples"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/diagnosis"
	"github.com/gpu-mode/kbgen/server/selftest"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/database"
)

type dbCmd struct {
	Migrate migrateCmd `cmd:""`
	Check   checkCmd   `cmd:""`
	Rebuild rebuildCmd `cmd:""`
	Convert convertCmd `cmd:""`
	Backup  backupCmd  `cmd:""`
	Export  exportCmd  `cmd:""`
}

type migrateCmd struct {
	place `embed:""`
}

func (c *migrateCmd) Run(ctx context.Context, env *cli.Env) error {
	before, after, err := database.Migrate(ctx, c.Database)
	if err != nil {
		return err
	}
	if before == after {
		fmt.Fprintf(env.Stdout, "version %d, nothing to do\n", after)
	} else {
		fmt.Fprintf(env.Stdout, "version %d, was %d\n", after, before)
	}
	return nil
}

type checkCmd struct {
	place `embed:""`
}

func (c *checkCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		faults, err := s.Check(ctx)
		if err != nil {
			return err
		}
		for _, fault := range faults {
			fmt.Fprintln(env.Stdout, fault)
		}
		if len(faults) > 0 {
			return cli.WithHint(errors.New("the standings differ from the runs"), "kbserve db rebuild")
		}
		fmt.Fprintln(env.Stdout, "the standings are what the runs say")
		return nil
	})
}

type rebuildCmd struct {
	place `embed:""`
}

func (c *rebuildCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		count, err := s.Rebuild(ctx)
		if err == nil {
			fmt.Fprintf(env.Stdout, "standings: %d\n", count)
		}
		return err
	})
}

type convertCmd struct {
	place `embed:""`
	To    string `arg:""`
}

func (c *convertCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(from *store.Store) error {
		to, err := open(ctx, c.To)
		if err != nil {
			return err
		}
		rows, err := store.Convert(ctx, from, to)
		if err := errors.Join(err, to.Close()); err != nil {
			return err
		}
		for _, table := range slices.Sorted(maps.Keys(rows)) {
			fmt.Fprintf(env.Stdout, "%-38s %d\n", table, rows[table])
		}
		return nil
	})
}

type exportCmd struct {
	place  `embed:""`
	Board  string `placeholder:"NAME" help:"export only this board"`
	Code   bool   `help:"include the submissions' text"`
	Format string `default:"json" placeholder:"FORMAT" help:"json, or parquet, which needs --out"`
	Out    string `placeholder:"FILE" help:"the file to write; it appears when it is complete"`
}

func (c *exportCmd) Run(ctx context.Context, env *cli.Env) error {
	switch {
	case c.Format != "json" && c.Format != "parquet":
		return cli.Usagef("--format: got %s, want json or parquet", text.Quote(c.Format))
	case c.Format == "parquet" && c.Out == "":
		return cli.Usagef("--format parquet: want --out FILE")
	}
	return c.with(ctx, func(s *store.Store) error {
		export := s.Export
		if c.Format == "parquet" {
			export = s.ExportParquet
		}
		if c.Out == "" {
			out := bufio.NewWriter(env.Stdout)
			_, err := export(ctx, out, c.Board, c.Code)
			return errors.Join(err, out.Flush())
		}
		file, err := renameio.NewPendingFile(c.Out, renameio.WithPermissions(0o600))
		if err != nil {
			return err
		}
		defer file.Cleanup()
		out := bufio.NewWriter(file)
		if _, err := export(ctx, out, c.Board, c.Code); err != nil {
			return err
		}
		return errors.Join(out.Flush(), file.CloseAtomicallyReplace())
	})
}

type backupCmd struct {
	place `embed:""`
	File  string `arg:""`
}

func (c *backupCmd) Run(ctx context.Context, _ *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error { return s.Backup(ctx, c.File) })
}

type doctorCmd struct {
	place     `embed:""`
	buildkite `embed:""`
	Age       time.Duration `default:"30m" placeholder:"TIME" help:"report submissions that have waited for at least so long"`
	JSON      bool          `name:"json" help:"print JSON"`
}

func (c *doctorCmd) Run(ctx context.Context, env *cli.Env) error {
	if c.Age < 0 {
		return cli.Usagef("--age: got %v, want 0 or more", c.Age)
	}
	o := diagnosis.Options{Fleet: pipelines.Fleet, Age: c.Age}
	if env.Getenv(varToken) == "" {
		fmt.Fprintf(env.Stderr, "kbserve: note: %s is not set: the agents of the queues are not checked\n", varToken)
	} else {
		var err error
		if o.Launcher, err = c.client(env, "", 0, nil); err != nil {
			return err
		}
	}
	if o.Store, o.Fault = open(ctx, c.Database); o.Store != nil {
		defer o.Store.Close() // it only read
	}
	d := diagnosis.Run(ctx, o)
	var err error
	if c.JSON {
		err = cli.PrintJSON(env.Stdout, d)
	} else {
		printDiagnosis(env, d)
	}
	if err == nil && !d.OK {
		err = fmt.Errorf("found: %d", len(d.Found))
	}
	return err
}

func printDiagnosis(env *cli.Env, d *diagnosis.Diagnosis) {
	for _, f := range d.Found {
		fmt.Fprintf(env.Stdout, "%s: %s\n  to do: %s\n", f.Kind, f.Text, f.ToDo)
	}
	if d.OK {
		fmt.Fprintln(env.Stdout, "nothing is stuck, and the standings are what the runs say")
	}
}

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
		if hinted, ok := errors.AsType[*selftest.Error](err); ok {
			return cli.WithHint(err, "%s", hinted.Hint)
		}
		return err
	})
}
