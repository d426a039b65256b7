package pipeline

// A pluginTable lists what settings a plugin has.
type pluginTable struct {
	versions []string          // that the table is of; empty when it holds for any
	settings map[string]string // name to types: t text, b boolean, i whole number, l list, m mapping, * anything; behind them the version that it came with
	absent   map[string]string // settings people look for, and why there are none
	required []string
	released bool // versions lists all that were released, oldest first
	// nested are the settings within a setting, by its name.
	nested map[string]map[string]string
	// caseSensitive names are not turned into variables, which would make
	// underscores and hyphens equal. Capitals do not count in them either.
	caseSensitive bool
}

// pluginTables holds Buildkite's own plugins by name. Sources: plugin.yml of
// each at the versions named, and for interactive and pull-retries of the
// docker plugin its read-me and hooks; for kubernetes the controller of
// agent-stack-k8s, v0.47.0.
var pluginTables = map[string]pluginTable{
	"docker": {
		// Every version there is. A setting that a version does not have yet is
		// ignored by it without a word.
		versions: []string{
			"v0.0.1", "v1.0.0", "v1.1.0", "v1.1.1", "v1.2.0", "v1.2.1", "v1.2.2", "v1.3.0", "v1.4.0", "v2.0.0",
			"v2.1.0", "v2.2.0", "v3.0.0", "v3.0.1", "v3.1.0", "v3.2.0", "v3.3.0", "v3.4.0", "v3.5.0", "v3.6.0",
			"v3.7.0", "v3.8.0", "v3.9.0", "v3.10.0", "v3.11.0", "v3.12.0", "v3.13.0", "v3.14.0", "v4.0.0", "v4.1.0",
			"v4.2.0", "v4.2.1", "v5.0.0", "v5.1.0", "v5.2.0", "v5.3.0", "v5.4.0", "v5.5.0", "v5.5.1", "v5.6.0",
			"v5.7.0", "v5.8.0", "v5.9.0", "v5.10.0", "v5.11.0", "v5.12.0", "v5.13.0",
		},
		released: true,
		required: []string{"image"},
		settings: map[string]string{
			"add-caps": "l v3.14.0", "add-host": "l v3.3.0", "additional-groups": "l v1.2.0", "always-pull": "b v1.1.0",
			"chown": "b v5.12.0", "chown-image": "t v5.12.0", "cleanup": "b v3.3.0", "command": "l v2.0.0", "cpus": "t v3.6.0",
			"debug": "b v1.1.0", "device-read-bps": "l v5.10.0", "device-read-iops": "l v5.10.0",
			"device-write-bps": "l v5.10.0", "device-write-iops": "l v5.10.0", "devices": "l v3.3.0", "drop-caps": "l v3.14.0",
			"entrypoint": "t v1.2.2", "env-file": "l v4.2.0", "env-propagation-list": "t v5.5.0", "environment": "l v1.1.0",
			"expand-image-vars": "b v5.7.0", "expand-volume-vars": "b v5.1.0", "gpus": "t v3.10.0", "image": "t",
			"init": "b v3.0.0", "interactive": "b v4.1.0", "ipc": "t v3.5.0", "leave-container": "b v3.11.0",
			"load": "t v5.9.0", "log-driver": "t v5.13.0", "log-opt": "l v5.13.0", "memory": "t v3.9.0",
			"memory-swap": "t v3.9.0", "memory-swappiness": "t v3.9.0", "mount-buildkite-agent": "b v1.1.0",
			"mount-checkout": "b v3.0.0", "mount-ssh-agent": "bt v3.0.0", "mounts": "lt v1.1.0", "network": "t v1.2.0",
			"pid": "t v3.10.0", "platform": "t v5.6.0", "privileged": "b v2.1.0", "propagate-aws-auth-tokens": "b v3.8.0",
			"propagate-environment": "b v2.1.0", "propagate-gcp-auth-tokens": "b v5.11.0", "propagate-uid-gid": "b v3.1.0",
			"publish": "l v3.4.0", "pull-retries": "i v3.0.0", "run-labels": "b v5.8.0", "runtime": "t v1.2.0",
			"security-opts": "l v3.14.0", "shell": "bl v1.3.0", "shm-size": "t v2.2.0", "skip-checkout": "b v4.0.0",
			"storage-opt": "t v3.13.0", "sysctls": "l v3.2.0", "tmpfs": "l v3.0.0", "tty": "b v2.0.0", "ulimits": "l v5.2.0",
			"user": "t v1.1.0", "userns": "t v3.4.0", "volumes": "l v2.0.0", "workdir": "t",
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
		nested: map[string]map[string]string{
			"checkout": {
				"skip": "b", "checkoutFlags": "t", "cleanFlags": "t", "cloneFlags": "t", "fetchFlags": "t", "noSubmodules": "b",
				"submoduleCloneConfig": "*", "gitMirrors": "*", "gitCredentialsSecret": "*", "envFrom": "l", "extraVolumeMounts": "l",
			},
			"commandParams": {"interposer": "t", "envFrom": "l", "extraVolumeMounts": "l"},
			"sidecarParams": {"envFrom": "l", "extraVolumeMounts": "l"},
			"metadata":      {"labels": "m", "annotations": "m"},
		},
	},
}
