package local

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A plugin source is where agents find a plugin without a network.
type pluginSource struct {
	remote string // what its URL begins with
	dir    string // a git repository
}

// pluginSources lists the plugins of a directory: NAME stands for
// github.com/buildkite-plugins/NAME and OWNER/NAME for that repository, both git
// repositories. NAME@VERSION is the content of one version; a repository is made
// of it below made.
func pluginSources(ctx context.Context, dir, made string) ([]pluginSource, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	const host, home = "https://github.com/", "buildkite-plugins/"
	var out []pluginSource
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			continue
		}
		name, version, versioned := strings.Cut(e.Name(), "@")
		switch {
		case versioned:
			repository := filepath.Join(made, name)
			if err := keepVersion(ctx, path, repository, version); err != nil {
				return nil, fmt.Errorf("plugin %s: %w", path, err)
			}
			out = append(out, pluginSource{host + home + name, repository})
		case isRepository(path):
			out = append(out, pluginSource{host + home + e.Name(), path})
		default: // an owner
			inner, err := os.ReadDir(path)
			if err != nil {
				return nil, fmt.Errorf("plugins: %w", err)
			}
			for _, i := range inner {
				if repository := filepath.Join(path, i.Name()); isRepository(repository) {
					out = append(out, pluginSource{host + e.Name() + "/" + i.Name(), repository})
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("plugins: %s holds no git repository and no NAME@VERSION", dir)
	}
	return out, nil
}

func isRepository(dir string) bool {
	return slices.ContainsFunc([]string{".git", "HEAD"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// keepVersion commits and tags a version of a plugin in a repository.
func keepVersion(ctx context.Context, content, repository, version string) error {
	git := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "git", append([]string{
			"--git-dir", filepath.Join(repository, ".git"), "--work-tree", content,
			"-c", "user.name=kblocal", "-c", "user.email=kblocal@localhost", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false",
		}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	if err := os.MkdirAll(repository, 0o700); err != nil {
		return err
	}
	return errors.Join(git("init", "--quiet"), git("add", "--all", "--force", "."),
		git("commit", "--quiet", "--allow-empty", "--no-verify", "--message", version), git("tag", "--force", version))
}

// gitEnv makes git fetch from the sources, wherever else it would. It goes on
// with the numbers that env has.
func gitEnv(env []string, sources []pluginSource) []string {
	count := 0
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "GIT_CONFIG_COUNT="); ok {
			count, _ = strconv.Atoi(value) // git refuses one that is no number
		}
	}
	var out []string
	for _, s := range sources {
		from := url.URL{Scheme: "file", Path: s.dir}
		out = append(out, fmt.Sprintf("GIT_CONFIG_KEY_%d=url.%s.insteadOf", count, from.String()), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", count, s.remote))
		count++
	}
	return append(out, fmt.Sprintf("GIT_CONFIG_COUNT=%d", count))
}
