package main

import (
	"path/filepath"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/schema"
)

// sandboxFlags say how strong a sandbox has to be, and what it shows.
type sandboxFlags struct {
	Sandbox          string `var:"KERNELBOT_SANDBOX" enum:"none,partial,full" default:"partial" placeholder:"LEVEL" help:"none, partial or full: how well a submission must be isolated here, or the job ends with 75. kbrun doctor shows what this machine offers"`
	SandboxRead      string `var:"KERNELBOT_SANDBOX_READ" placeholder:"PATHS" help:"files and directories, separated by colons, that a submission may read beyond the system's, PATH, and the installations of python3 and nvcc"`
	AllowWeakSandbox bool   `help:"run a submission in whatever sandbox this machine offers"`
}

// level is the one without which nothing runs. A step of kbgen's always says it,
// so that no variable of a build does.
func (f *sandboxFlags) level() string {
	if f.AllowWeakSandbox {
		return schema.SandboxNone
	}
	return f.Sandbox
}

// paths returns what a submission may read beyond the system's own, and what
// is hidden from it: what the agent works with, and where results go.
func (f *sandboxFlags) paths(env *cli.Env) (read, hide []string) {
	for _, name := range []string{
		"BUILDKITE_BUILD_PATH", "BUILDKITE_BUILD_CHECKOUT_PATH", "BUILDKITE_HOOKS_PATH", "BUILDKITE_PLUGINS_PATH",
		"BUILDKITE_GIT_MIRRORS_PATH", "BUILDKITE_SOCKETS_PATH",
	} {
		if path := env.Getenv(name); path != "" {
			hide = append(hide, path)
		}
	}
	if path := env.Getenv("BUILDKITE_CONFIG_PATH"); path != "" {
		hide = append(hide, filepath.Dir(path))
	}
	return filepath.SplitList(f.SandboxRead), hide
}
