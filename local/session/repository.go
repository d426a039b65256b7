package main

import (
	"context"
	"os/exec"
	"strings"
)

// A repository is the git repository of the working directory; dir is empty
// when there is none with a commit.
type repository struct {
	dir    string
	commit string
	branch string
	dirty  bool // has changes that a checkout will not have
}

func findRepository(ctx context.Context) repository {
	git := func(args ...string) string {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	r := repository{dir: git("rev-parse", "--show-toplevel"), commit: git("rev-parse", "--verify", "HEAD"), branch: "main"}
	if r.dir == "" || r.commit == "" {
		return repository{branch: "main"}
	}
	if name := git("symbolic-ref", "--short", "HEAD"); name != "" {
		r.branch = name
	}
	r.dirty = git("status", "--porcelain") != ""
	return r
}
