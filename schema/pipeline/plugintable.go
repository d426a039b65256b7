package pipeline

// A pluginTable lists what settings a plugin has.
type pluginTable struct {
	versions []string          // that the table is of; empty when it holds for any
	settings map[string]string // name to types: t text, b boolean, i whole number, l list, m mapping, * anything
	since    map[string]string // settings that came with a version, and that version
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
			"add-caps": "l", "add-host": "l", "additional-groups": "l", "always-pull": "b", "chown": "b", "chown-image": "t", "cleanup": "b",
			"command": "l", "cpus": "t", "debug": "b", "device-read-bps": "l", "device-read-iops": "l",
			"device-write-bps": "l", "device-write-iops": "l", "devices": "l", "drop-caps": "l", "entrypoint": "t",
			"env-file": "l", "env-propagation-list": "t", "environment": "l", "expand-image-vars": "b",
			"expand-volume-vars": "b", "gpus": "t", "image": "t", "init": "b", "interactive": "b", "ipc": "t",
			"leave-container": "b", "load": "t", "log-driver": "t", "log-opt": "l", "memory": "t", "memory-swap": "t",
			"memory-swappiness": "t", "mount-buildkite-agent": "b", "mount-checkout": "b", "mount-ssh-agent": "bt", "mounts": "lt",
			"network": "t", "pid": "t", "platform": "t", "privileged": "b", "propagate-aws-auth-tokens": "b",
			"propagate-environment": "b", "propagate-gcp-auth-tokens": "b", "propagate-uid-gid": "b", "publish": "l",
			"pull-retries": "i", "run-labels": "b", "runtime": "t", "security-opts": "l", "shell": "bl", "shm-size": "t",
			"skip-checkout": "b", "storage-opt": "t", "sysctls": "l", "tmpfs": "l", "tty": "b", "ulimits": "l", "user": "t",
			"userns": "t", "volumes": "l", "workdir": "t",
		},
		since: map[string]string{
			"add-caps": "v3.14.0", "add-host": "v3.3.0", "additional-groups": "v1.2.0", "always-pull": "v1.1.0",
			"chown": "v5.12.0", "chown-image": "v5.12.0", "cleanup": "v3.3.0", "command": "v2.0.0", "cpus": "v3.6.0",
			"debug": "v1.1.0", "device-read-bps": "v5.10.0", "device-read-iops": "v5.10.0",
			"device-write-bps": "v5.10.0", "device-write-iops": "v5.10.0", "devices": "v3.3.0",
			"drop-caps": "v3.14.0", "entrypoint": "v1.2.2", "env-file": "v4.2.0", "env-propagation-list": "v5.5.0",
			"environment": "v1.1.0", "expand-image-vars": "v5.7.0", "expand-volume-vars": "v5.1.0",
			"gpus": "v3.10.0", "init": "v3.0.0", "interactive": "v4.1.0", "ipc": "v3.5.0",
			"leave-container": "v3.11.0", "load": "v5.9.0", "log-driver": "v5.13.0", "log-opt": "v5.13.0",
			"memory": "v3.9.0", "memory-swap": "v3.9.0", "memory-swappiness": "v3.9.0",
			"mount-buildkite-agent": "v1.1.0", "mount-checkout": "v3.0.0", "mount-ssh-agent": "v3.0.0",
			"mounts": "v1.1.0", "network": "v1.2.0", "pid": "v3.10.0", "platform": "v5.6.0", "privileged": "v2.1.0",
			"propagate-aws-auth-tokens": "v3.8.0", "propagate-environment": "v2.1.0",
			"propagate-gcp-auth-tokens": "v5.11.0", "propagate-uid-gid": "v3.1.0", "publish": "v3.4.0",
			"pull-retries": "v3.0.0", "run-labels": "v5.8.0", "runtime": "v1.2.0", "security-opts": "v3.14.0",
			"shell": "v1.3.0", "shm-size": "v2.2.0", "skip-checkout": "v4.0.0", "storage-opt": "v3.13.0",
			"sysctls": "v3.2.0", "tmpfs": "v3.0.0", "tty": "v2.0.0", "ulimits": "v5.2.0", "user": "v1.1.0",
			"userns": "v3.4.0", "volumes": "v2.0.0",
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
