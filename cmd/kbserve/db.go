package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/renameio/v2"
	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/text"
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
