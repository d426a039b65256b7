#!/bin/sh
# tools/docker.sh prints the PATH to run the tests with a docker engine with.
#
#   path=$(sh tools/docker.sh) && PATH=$path KBGEN_DOCKER_TESTS=1 go test ./e2e
#
# It is the PATH there is, when dockerd, containerd, runc, docker-init and
# docker are on it. Where they are not, and apt-get reaches Debian's packages,
# those are fetched and unpacked into bin/docker-engine; nothing is installed
# and nothing is started. Stdout carries the PATH only. Exit status: 0 with a
# PATH, 1 without one.

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
printf '%s\n' "$PATH"
