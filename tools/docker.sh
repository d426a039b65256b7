#!/bin/sh
# tools/docker.sh prints the PATH to run the tests with a docker engine with.
#
#   path=$(sh tools/docker.sh) && PATH=$path KBGEN_DOCKER_TESTS=1 go test ./e2e
#
# It is the PATH there is, when dockerd, containerd, runc, docker-init and
# docker are on it. Where they are not, and apt-get reaches Debian's packages,
# those are fetched and unpacked into bin/docker-engine; nothing is installed
# and nothing is started. iptables must be installed. Stdout carries the PATH
# only. Exit status: 0 with a PATH, 1 without one.

set -eu

say() { printf 'tools/docker.sh: %s\n' "$*" >&2; }

programs='dockerd containerd runc docker-init docker'
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
engine=$(dirname -- "$here")/bin/docker-engine

# complete says whether all programs are on PATH.
complete() {
	for name in $programs; do
		command -v "$name" >/dev/null || return 1
	done
}

# A user's PATH often lacks the directory where Debian puts dockerd. What is
# there already comes first.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
if ! command -v iptables >/dev/null; then
	say "error: iptables is not on PATH; the engine needs it for the names of containers; install it (Debian: apt-get install iptables)"
	exit 1
fi
if ! complete; then
	PATH=$PATH:$engine/usr/sbin:$engine/usr/bin
fi
if ! complete; then
	if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
		say "error: not all of $programs are on PATH, and there is no apt-get to fetch them with; install docker"
		exit 1
	fi
	mkdir -p -- "$(dirname -- "$engine")"
	made=$(mktemp -d "$engine.XXXXXX")
	trap 'rm -rf "$made"' EXIT
	trap 'exit 1' HUP INT TERM
	say 'fetching docker.io, containerd, runc and tini from Debian (65 MB) into bin/docker-engine'
	if ! (cd "$made" && apt-get download docker.io containerd runc tini) >"$made/log" 2>&1; then
		tail -n 3 "$made/log" >&2
		say 'error: apt-get download ended with the lines above; apt-get update may help, or install docker'
		exit 1
	fi
	for package in "$made"/*.deb; do
		dpkg-deb --extract "$package" "$made/root"
	done
	rm -rf "$engine"
	mv -- "$made/root" "$engine"
	chmod 0755 "$engine"
	complete || {
		say "error: the packages lack one of $programs"
		exit 1
	}
fi

# composes says whether there is docker compose of version 2 or newer. Debian's
# docker-compose 1 is another program.
composes() {
	docker compose version >/dev/null 2>&1 && return
	case $(docker-compose version --short 2>/dev/null) in
	'' | 1.*) return 1 ;;
	esac
}

compose=v2.39.4
built=$engine/usr/bin/docker-compose
if ! composes && [ -x "$built" ]; then
	PATH=$engine/usr/bin:$PATH # before a docker-compose 1
fi
if ! composes; then
	go=${GO:-go}
	say "building docker compose $compose from its Go module into bin/docker-engine: some minutes"
	work=$(mktemp -d)
	trap 'rm -rf "$work" ${made:+"$made"}' EXIT
	trap 'exit 1' HUP INT TERM
	mkdir -p -- "$engine/usr/bin"
	# Its go.mod excludes versions, so that go install refuses it: it is built as
	# the main module. The go command checks it against the checksum database.
	if (
		set -e
		cd "$work"
		from=$("$go" mod download -json "github.com/docker/compose/v2@$compose" | sed -n 's/^.*"Dir": "\(.*\)",$/\1/p')
		cp -R -- "$from" source
		chmod -R u+w source
		cd source
		CGO_ENABLED=0 "$go" build -trimpath -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$compose" -o "$built.new" ./cmd
		mv -- "$built.new" "$built"
	) >"$work/log" 2>&1; then
		PATH=$engine/usr/bin:$PATH
	else
		tail -n 3 "$work/log" >&2
		say 'docker compose could not be built, see the lines above; go on without it'
	fi
	rm -rf "$work"
fi
printf '%s\n' "$PATH"
