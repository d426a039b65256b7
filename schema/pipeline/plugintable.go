package pipeline

// A pluginTable lists what settings a plugin has.
type pluginTable struct {
	versions []string          // that the table is of; empty when it holds for any
	settings map[string]string // name to types: t text, b boolean, i whole number, l list, m mapping, * anything
	since    map[string]string // settings that only the newest version has, and that version
	absent   map[string]string // settings people look for, and why there are none
	required []string
	// caseSensitive names are not turned into variables, which would make
	// capitals and underscores equal.
	caseSensitive bool
}

// pluginTables holds Buildkite's own plugins by name. Sources: plugin.yml of
// each at the versions named, and for interactive and pull-retries of the
// docker plugin its read-me; for kubernetes the controller of agent-stack-k8s.
var pluginTables = map[string]pluginTable{
	"docker": {
		versions: []string{"v5.11.0", "v5.13.0"},
		required: []string{"image"},
		settings: map[string]string{
			"add-caps": "l", "add-host": "l", "additional-groups": "l", "always-pull": "b", "chown": "b", "chown-image": "t",
			"command": "l", "cpus": "t", "debug": "b", "device-read-bps": "l", "device-read-iops": "l",
			"device-write-bps": "l", "device-write-iops": "l", "devices": "l", "drop-caps": "l", "entrypoint": "t",
			"env-file": "l", "env-propagation-list": "t", "environment": "l", "expand-image-vars": "b",
			"expand-volume-vars": "b", "gpus": "t", "image": "t", "init": "b", "interactive": "b", "ipc": "t",
			"leave-container": "b", "load": "t", "log-driver": "t", "log-opt": "l", "memory": "t", "memory-swap": "t",
			"memory-swappiness": "t", "mount-buildkite-agent": "b", "mount-checkout": "b", "mount-ssh-agent": "bt",
			"network": "t", "pid": "t", "platform": "t", "privileged": "b", "propagate-aws-auth-tokens": "b",
			"propagate-environment": "b", "propagate-gcp-auth-tokens": "b", "propagate-uid-gid": "b", "publish": "l",
			"pull-retries": "i", "run-labels": "b", "runtime": "t", "security-opts": "l", "shell": "bl", "shm-size": "t",
			"skip-checkout": "b", "storage-opt": "t", "sysctls": "l", "tmpfs": "l", "tty": "b", "ulimits": "l", "user": "t",
			"userns": "t", "volumes": "l", "workdir": "t",
		},
		since: map[string]string{
			"chown":       "v5.13.0",
			"chown-image": "v5.13.0",
			"log-driver":  "v5.13.0",
			"log-opt":     "v5.13.0",
		},
		absent: map[string]string{
			"cpuset-cpus":   "the machine limits the cores, see its service",
			"cpuset":        "the machine limits the cores, see its service",
			"pids-limit":    "the machine limits processes; ulimits has nproc",
			"read-only":     "docker's flag has no setting",
			"cgroup-parent": "the machine chooses the slice",
			"gpu":           "the setting is gpus",
			"device":        "the setting is devices, a list",
			"hostname":      "docker's flag has no setting",
			"dns":           "docker's flag has no setting",
		},
	},
	"docker-compose": {
		versions: []string{"v5.14.0"},
		settings: map[string]string{
			"ansi": "b", "args": "lt", "build": "lt", "build-alias": "lt", "build-labels": "lt", "build-parallel": "b",
			"builder": "m", "buildkit": "b", "buildkit-inline-cache": "b", "cache-from": "lt", "cache-to": "lt",
			"cli-version": "*", "collapse-logs": "b", "command": "l", "compatibility": "b", "config": "lt",
			"dependencies": "b", "disable-host-otel-tracing": "b", "entrypoint": "t", "env": "lmt",
			"env-propagation-list": "t", "environment": "lmt", "expand-push-vars": "b", "expand-volume-vars": "b",
			"graceful-shutdown": "b", "leave-volumes": "b", "mount-buildkite-agent": "b", "mount-checkout": "bt",
			"mount-ssh-agent": "bt", "no-cache": "b", "pre-run-dependencies": "b", "prebuilt-image-namespace": "t",
			"progress": "t", "propagate-aws-auth-tokens": "b", "propagate-environment": "b", "propagate-gcp-auth-tokens": "b",
			"propagate-uid-gid": "b", "pull": "lt", "pull-retries": "i", "push": "lt", "push-metadata": "b",
			"push-retries": "i", "quiet-pull": "b", "quiet-push": "b", "require-prebuild": "b", "rm": "b", "run": "t",
			"run-image": "t", "run-labels": "b", "service-ports": "b", "shell": "bl", "skip-checkout": "b", "skip-pull": "b",
			"ssh": "bt", "target": "t", "tty": "b", "upload-container-logs": "t", "use-aliases": "b", "user": "t",
			"verbose": "b", "volumes": "lt", "wait": "b", "with-dependencies": "b", "workdir": "t",
		},
	},
	"artifacts": {
		versions: []string{"v1.9.3", "v1.9.4"},
		settings: map[string]string{
			"build": "t", "compressed": "t", "download": "*", "expand-download-vars": "b", "expand-upload-vars": "b",
			"gs-upload-acl": "t", "ignore-missing": "b", "s3-upload-acl": "t", "skip-on-status": "*", "step": "t",
			"upload": "*",
		},
	},
	"docker-login": {
		versions: []string{"v3.0.0"},
		settings: map[string]string{
			"username": "t", "password-env": "t", "server": "t", "retries": "i", "disable-command-substitution": "b",
		},
	},
	"kubernetes": {
		caseSensitive: true,
		settings: map[string]string{
			"podSpec": "m", "podSpecPatch": "m", "podTemplate": "t", "gitEnvFrom": "l", "sidecars": "l", "metadata": "m",
			"extraVolumeMounts": "l", "checkout": "m", "commandParams": "m", "sidecarParams": "m",
			"jobActiveDeadlineSeconds": "i",
		},
	},
}
