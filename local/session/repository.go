package session

import (
	"context"
	"os/exec"
	"strings"
)

// A Repository is the git repository of the working directory; Dir is empty
// when there is none with a commit.
type Repository struct {
	Dir    string
	Commit string
	Branch string
	Dirty  bool // has changes that a checkout will not have
}

// FindRepository asks git.
func FindRepository(ctx context.Context) Repository {
	git := func(args ...string) string {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	r := Repository{Dir: git("rev-parse", "--show-toplevel"), Commit: git("rev-parse", "--verify", "HEAD"), Branch: "main"}
	if r.Dir == "" || r.Commit == "" {
		return Repository{Branch: "main"}
	}
	if name := git("symbolic-ref", "--short", "HEAD"); name != "" {
		r.Branch = name
	}
	r.Dirty = git("status", "--porcelain") != ""
	return r
}
