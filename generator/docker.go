package generator

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
)

const dockerSource = "docker#" + schema.PluginVersion

// dockerPlugin says how the container of a step is started, in printed order.
// What is not here is never written. Above all: privileged, pid, ipc, userns,
// runtime, volumes, propagate-environment, the expand-*-vars family, chown,
// and anything null, which makes the plugin drop settings at random.
//
// Docker's init, the plugin's default, reaps what a script leaves behind. A
// step that is its own first process does without: in front of kbrun it would
// hold the payload in its environment, and the plugin's shell behind it would
// swallow SIGTERM. The labels that a node finds leftovers by stay on.
func dockerPlugin(s pipelines.CommandStep, env []pipelines.Var) (node, error) {
	g := s.On
	n := mapping()
	n.set("image", str(cmp.Or(s.Image, g.Image)))
	// A fresh directory at /workdir instead of a checkout that later jobs on
	// the agent would share.
	n.set("skip-checkout", truth(true))
	// True would put the job's access token into the container. False is the
	// plugin's default, written down because it must not change.
	n.set("mount-buildkite-agent", truth(false))
	// The agent's user is the only one who can write the fresh directory.
	// Never written as false, which also enables it.
	n.set("propagate-uid-gid", truth(true))
	if s.First {
		n.set("init", truth(false))
	}
	n.set("tty", truth(false))    // docker refuses -t under agents without a pseudo-terminal
	n.set("network", str("none")) // the payload comes by environment, the result leaves by file
	n.set("shm-size", str(fmt.Sprintf("%dg", cmp.Or(g.ShmGiB, pipelines.DefaultShmGiB))))
	n.set("environment", strs(names(s, env))) // names only; values would end up in the uploaded pipeline
	n.set("ulimits", strs([]string{"memlock=-1", "core=0"}))
	n.set("drop-caps", strs([]string{"ALL"}))
	n.set("security-opts", strs([]string{"no-new-privileges"}))
	// exec, because docker mounts a tmpfs noexec and extensions are compiled
	// there and loaded from there.
	n.set("tmpfs", strs([]string{"/tmp:exec,size=8g,mode=1777"}))
	if err := addDevices(&n, g); err != nil {
		return n, err
	}
	if g.Isolation == pipelines.Step {
		memory := fmt.Sprintf("%dg", g.MemoryGiB)
		n.set("cpus", str(strconv.Itoa(g.CPUs)))
		n.set("memory", str(memory))
		n.set("memory-swap", str(memory)) // the same number: no swap on top
	}
	return plugin(dockerSource, n), nil
}

// names lists the variables a container gets. A name that the job does not
// have is taken out of the image's environment, so carriers of the payload
// that a build does not use do no harm.
func names(s pipelines.CommandStep, env []pipelines.Var) []string {
	all := slices.Clone(s.Pass)
	for _, v := range env {
		all = append(all, v.Name)
	}
	first := []string{schema.EnvRunID, schema.SecretEnv(schema.EnvRunID), schema.EnvStepGPU, schema.EnvStepQueue, schema.EnvGPU, schema.EnvQueue, schema.EnvMode, schema.EnvDeadline}
	var out []string
	for _, name := range slices.Concat(first, all) {
		if slices.Contains(all, name) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
