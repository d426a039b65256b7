package main

import (
	"context"
	"fmt"
	"strings"
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
	Logout userLogoutCmd `cmd:""`
	Ban    userBanCmd    `cmd:""`
	Unban  userBanCmd    `cmd:""`
}

type userCreateCmd struct {
	place `embed:""`
	ID    string `arg:""`
	Name  string `placeholder:"TEXT" help:"the name that boards show"`

	Provider string `enum:",github,discord" default:"" placeholder:"NAME" help:"tie the user to the account with this id at github or discord; no CLI id is made"`
}

func (c *userCreateCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		if c.Provider != "" {
			return s.TieUser(ctx, c.ID, c.Name, c.Provider)
		}
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
		token, err := s.NewLink(ctx, c.ID, time.Now().Add(identity.LinkLife))
		if err == nil {
			fmt.Fprintf(env.Stdout, "%s%s?%s=%s\n", strings.TrimRight(c.URL, "/"), identity.LinkPath, identity.LinkField, token)
		}
		return err
	})
}

type userLogoutCmd struct {
	place `embed:""`
	ID    string `arg:""`
}

func (c *userLogoutCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error { return s.EndSessions(ctx, c.ID) })
}

type userListCmd struct {
	place `embed:""`
	JSON  bool `name:"json" help:"print JSON"`
}

func (c *userListCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		users, err := s.Users(ctx)
		if err != nil {
			return err
		}
		return cli.PrintList(env.Stdout, c.JSON, users, "ID\tNAME\tSTATE\tSUBMISSIONS", func(u store.User) string {
			state := "no CLI id"
			if u.CLI {
				state = "may submit"
			}
			if u.Banned {
				state = "banned"
			}
			return fmt.Sprintf("%s\t%s\t%s\t%d", text.Line(u.ID, 40), text.Line(u.Name, 60), state, u.Submissions)
		})
	})
}

type userBanCmd struct {
	place  `embed:""`
	ID     string `arg:""`
	banned bool
}

func (c *userBanCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error { return s.Ban(ctx, c.ID, c.banned) })
}

type inviteCmd struct {
	Create inviteCreateCmd `cmd:""`
	List   inviteListCmd   `cmd:""`
	Revoke inviteRevokeCmd `cmd:""`
}

type inviteCreateCmd struct {
	place  `embed:""`
	Boards []string `arg:"" name:"board"`
	Number int      `short:"n" default:"1" placeholder:"N" help:"how many codes to make"`
}

func (c *inviteCreateCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		codes, err := s.NewInvites(ctx, c.Boards, c.Number)
		for _, code := range codes {
			fmt.Fprintln(env.Stdout, code)
		}
		return err
	})
}

type inviteListCmd struct {
	place `embed:""`
	Board string `arg:"" optional:""`
	JSON  bool   `name:"json" help:"print JSON"`
}

// listedInvite is an invite in --json.
type listedInvite struct {
	Code     string     `json:"code"`
	Boards   []string   `json:"boards"`
	UserID   string     `json:"user_id"` // "" until somebody has claimed it
	UserName string     `json:"user_name"`
	Created  time.Time  `json:"created_at"`
	Claimed  *time.Time `json:"claimed_at"`
}

func (c *inviteListCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error {
		invites, err := s.Invites(ctx, c.Board)
		if err != nil {
			return err
		}
		var list []listedInvite
		for _, i := range invites {
			l := listedInvite{Code: i.Code, Boards: append([]string{}, i.Boards...), UserID: i.UserID, UserName: i.User, Created: i.Created}
			if !i.Claimed.IsZero() {
				l.Claimed = &i.Claimed
			}
			list = append(list, l)
		}
		return cli.PrintList(env.Stdout, c.JSON, list, "CODE\tMADE\tCLAIMED BY\tBOARDS", func(i listedInvite) string {
			by := "-"
			if i.UserID != "" {
				by = strings.TrimSpace(text.Line(i.UserID, 40) + " " + text.Line(i.UserName, 60))
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s", text.Line(i.Code, 80), i.Created.Format("2006-01-02"), by, text.Line(strings.Join(i.Boards, ","), 200))
		})
	})
}

type inviteRevokeCmd struct {
	place `embed:""`
	Code  string `arg:""`
}

func (c *inviteRevokeCmd) Run(ctx context.Context, env *cli.Env) error {
	return c.with(ctx, func(s *store.Store) error { return s.RevokeInvite(ctx, c.Code) })
}
