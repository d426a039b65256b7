package generator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
)

// command writes one step down in the strict subset: key, label and command
// always, numbers as numbers, nothing null. Fields are printed in the order in
// which they are set here.
func command(s pipelines.CommandStep) (node, error) {
	n := node{kind: mapping, names: make([]string, 0, 16), items: make([]node, 0, 16)}
	if err := s.Validate(); err != nil {
		return n, err
	}
	sealed, fetched := secrets(s.Secrets)
	n.set("key", str(s.Key))
	n.set("label", str(s.Label))
	n.set("command", str(strings.Join(append(sealed, s.Command...), "\n")))
	platform := platformOf(s)
	env := slices.Clone(s.Env)
	if s.Deadline && platform != pipelines.Host {
		// On a host kbrun reads the timeout by itself.
		env = append(env, pipelines.Var{Name: schema.EnvDeadline, Value: fmt.Sprintf("%dm", int(pipelines.Deadline(s.Timeout).Minutes()))})
	}
	var plugins node
	var err error
	switch platform {
	case pipelines.Host:
		n.set("agents", agents(s.On.Queue, ""))
	case pipelines.Docker:
		env = append(env, vendorEnv(s.On)...)
		n.set("agents", agents(s.On.Queue, ""))
		plugins, err = dockerPlugin(s, env)
	case pipelines.Kubernetes:
		env = append(env, vendorEnv(s.On)...)
		n.set("agents", agents(s.On.Queue, s.On.ResourceClass))
		n.set("image", str(cmp.Or(s.Image, s.On.Image)))
		plugins, err = kubernetesPlugin(s)
	default:
		err = fmt.Errorf("platform %q: kbgen does not know how to start jobs there", platform)
	}
	if err != nil {
		return n, err
	}
	setEnv(&n, env)
	if len(fetched) > 0 {
		n.set("secrets", strs(fetched))
	}
	// Not checkout.skip in docker: it would also skip the plugin's checkout
	// hook, which makes the fresh directory that the job works in.
	if !s.Checkout && platform != pipelines.Docker {
		n.set("checkout", single("skip", truth(true)))
	}
	if s.Skip != "" {
		n.set("skip", str(s.Skip))
	}
	n.set("timeout_in_minutes", num(int(s.Timeout.Minutes())))
	setOrder(&n, s)
	// Outside docker kbrun has the agent at hand and uploads by itself, after
	// the submission's processes are gone.
	if len(s.Artifacts) > 0 && (platform == pipelines.Docker || !s.Secure) {
		n.set("artifact_paths", strs(s.Artifacts))
	}
	n.set("retry", retry(s.Retry, platform))
	if plugins.items != nil {
		n.set("plugins", plugins)
	}
	return n, nil
}

// secrets are the lines with which a command begins that asks its machine's broker
// for sealed values, and the names of what the agent fetches.
func secrets(all []pipelines.Secret) (lines, fetched []string) {
	for _, s := range all {
		if s.Store == pipelines.SealedStore {
			lines = append(lines, s.Name+"=$(kbgen secret get "+s.Name+")")
		} else {
			fetched = append(fetched, s.Name)
		}
	}
	return lines, fetched
}

// platformOf is what surrounds the step's command.
func platformOf(s pipelines.CommandStep) pipelines.Platform {
	if s.Bare {
		return pipelines.Host
	}
	return s.On.Platform
}

func agents(queue, class string) node {
	n := node{kind: mapping}
	n.set("queue", str(queue))
	if class != "" {
		n.set("resource_class", str(class))
	}
	return n
}

// setEnv prints variables sorted by name; the last of two with one name counts.
func setEnv(n *node, vars []pipelines.Var) {
	if len(vars) == 0 {
		return
	}
	slices.SortStableFunc(vars, func(a, b pipelines.Var) int { return strings.Compare(a.Name, b.Name) })
	env := node{kind: mapping, names: make([]string, 0, len(vars)), items: make([]node, 0, len(vars))}
	for _, v := range vars {
		env.set(v.Name, str(v.Value))
	}
	n.set("env", env)
}

// setOrder says which jobs come first and which must wait.
func setOrder(n *node, s pipelines.CommandStep) {
	if s.Priority != nil {
		n.set("priority", num(*s.Priority))
	}
	if s.Group != "" {
		n.set("concurrency", num(s.Limit))
		n.set("concurrency_group", str(s.Group))
		n.set("concurrency_method", str("eager")) // ordered would hold up jobs for other queues
	}
	if len(s.DependsOn) > 0 {
		n.set("depends_on", strs(s.DependsOn))
	}
}

func retry(class pipelines.RetryClass, on pipelines.Platform) node {
	rules := node{kind: list}
	for _, r := range class.Rules(on) {
		rule := node{kind: mapping}
		if len(r.ExitStatus) > 0 {
			rule.set("exit_status", nums(r.ExitStatus))
		}
		if r.SignalReason != "" {
			rule.set("signal_reason", str(r.SignalReason))
		}
		rule.set("limit", num(r.Limit))
		rules.add(rule)
	}
	if rules.items == nil {
		rules = truth(false)
	}
	return single("automatic", rules)
}

// plugin is a list item with one key, its pinned source.
func plugin(source string, config node) node {
	return node{kind: list, items: []node{single(source, config)}}
}
