package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/identity"
	"github.com/gpu-mode/kbgen/store"
)

type userCmd struct {
	Create userCreateCmd `cmd:""`
	List   userListCmd   `cmd:""`
	Login  userLoginCmd  `cmd:""`
	Ban    userBanCmd    `cmd:""`
	Unban  userUnbanCmd  `cmd:""`
}

type userCreateCmd struct {
	place `embed:""`
	ID    string `arg:""`
	Name  string `placeholder:"TEXT" help:"the name that boards show"`
}

func (c *userCreateCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		id, err := s.NewCLIID(ctx, c.ID, c.Name)
		if err == nil {
			fmt.Fprintln(env.Stdout, id)
		}
		return err
	})
}

type userLoginCmd struct {
	place `embed:""`
	ID    string `arg:""`
	URL   string `name:"url" var:"KBSERVE_URL" default:"http://127.0.0.1:8080" placeholder:"URL" help:"the address that browsers use"`
}

// Run prints a link that logs one browser in.
func (c *userLoginCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		if _, err := s.User(ctx, c.ID); err != nil {
			return err
		}
		token, err := s.NewSession(ctx, c.ID, time.Now().Add(identity.LinkLife))
		if err == nil {
			fmt.Fprintf(env.Stdout, "%s%s?%s=%s\n", strings.TrimRight(c.URL, "/"), identity.LinkPath, identity.LinkField, token)
		}
		return err
	})
}

type userListCmd struct {
	place `embed:""`
	JSON  bool `name:"json" help:"print JSON"`
}

// listedUser is a user in --json.
type listedUser struct {
	ID          string `json:"id"`
	Name        string `json:"name" placeholder:"TEXT" help:"the name that boards show"`
	Banned      bool   `json:"banned"`
	CLI         bool   `json:"cli"` // may submit through the CLI
	Submissions int    `json:"submissions"`
}

func (c *userListCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		users, err := s.Users(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			list := []listedUser{}
			for _, u := range users {
				list = append(list, listedUser(u))
			}
			return cli.PrintJSON(env.Stdout, list)
		}
		w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tNAME\tSTATE\tSUBMISSIONS")
		for _, u := range users {
			state := "no CLI id"
			if u.CLI {
				state = "may submit"
			}
			if u.Banned {
				state = "banned"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\n", text.Line(u.ID, 40), text.Line(u.Name, 60), state, u.Submissions)
		}
		return w.Flush()
	})
}

type userBanCmd struct {
	place `embed:""`
	ID    string `arg:""`
}

func (c *userBanCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error { return s.Ban(ctx, c.ID, true) })
}

type userUnbanCmd struct {
	place `embed:""`
	ID    string `arg:""`
}

func (c *userUnbanCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error { return s.Ban(ctx, c.ID, false) })
}
