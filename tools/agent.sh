#!/bin/sh
# tools/agent.sh prints the path of a buildkite-agent to work with.
#
#   agent=$(sh tools/agent.sh)
#
# The first of these that there is:
#
#   1. the buildkite-agent on PATH, from version 3.122.0 on
#   2. bin/buildkite-agent in this repository, when it is the pinned version
#   3. the pinned version, built from its Go module into bin/
#
# Stdout carries the path only, absolute and alone on its line; stderr carries
# the rest. Exit status: 0 with a path, 1 without one. Two calls at once build
# once. Works from any directory, without root.

set -eu

least=3.122.0  # older agents lack what kbgen's tests and demo rely on
pinned=3.138.0 # the version in tools/buildkite-agent/go.mod
module=github.com/buildkite/agent/v3

say() { printf 'tools/agent.sh: %s\n' "$*" >&2; }

die() {
	say "error: $*"
	exit 1
}

# version_of AGENT prints what follows "version" in its --version line, such as
# 3.138.0+5678.abcdef; nothing when AGENT does not run or prints something else.
version_of() {
	"$1" --version 2>/dev/null </dev/null |
		sed -n '1s/^.*version v\{0,1\}\([0-9][0-9]*\.[0-9][0-9]*\.[0-9][0-9]*[-+0-9A-Za-z.]*\).*$/\1/p' || :
}

# at_least VERSION MINIMUM compares number by number; a pre-release of the
# minimum is below it.
at_least() {
	awk -v have="$1" -v want="$2" 'BEGIN {
		sub(/\+.*/, "", have)
		pre = sub(/-.*/, "", have)
		split(have, h, "."); split(want, w, ".")
		for (i = 1; i <= 3; i++)
			if (h[i] + 0 != w[i] + 0) exit !(h[i] + 0 > w[i] + 0)
		exit pre
	}'
}

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
root=$(dirname -- "$here")
bin=$root/bin
target=$bin/buildkite-agent
lock=$bin/.buildkite-agent.lock
made=$bin/.buildkite-agent.$$

# sources prints all that decides what the pinned binary is.
sources() {
	cat "$here"/buildkite-agent/go.mod "$here"/buildkite-agent/go.sum "$here"/ec2/go.mod
	for f in "$here"/ec2/*.go "$here"/ec2/types/*.go; do
		case $f in
		*_test.go) ;;
		*) cat "$f" ;;
		esac
	done
}

# The binary carries this sum as its build number, so that one built from an
# older stand-in or go.mod is seen for what it is.
sum=$(sources | cksum | cut -d ' ' -f 1)

# current says whether bin/ holds the pinned version: built here from what lies
# here, or put there by somebody.
current() {
	[ -x "$target" ] || return 1
	case $(version_of "$target") in
	"$pinned+kbgen$sum" | "$pinned+kbgen$sum".*) return 0 ;;
	"$pinned+kbgen"*) return 1 ;;
	"$pinned" | "$pinned+"*) return 0 ;;
	*) return 1 ;;
	esac
}

# progress says every few seconds how far the build is: go build -v names each
# module that it downloads and each package that it compiles.
progress() {
	seen=
	while sleep 10 >/dev/null 2>&1; do # it holds no pipe of a caller's when this is killed
		[ -e "$made.log" ] || continue
		now="$(grep -c '^go: downloading ' "$made.log" || :) modules downloaded, $(grep -vc '[ :]' "$made.log" || :) packages compiled"
		[ "$now" = "$seen" ] || say "$now"
		seen=$now
	done
}

# build compiles into a file of its own and renames it, so that nobody ever
# runs half a binary. The caller's Go settings may be made for another module
# or machine; here they would change go.mod, or build what cannot run.
build() {
	say "building buildkite-agent $pinned; cold, this takes two to four minutes on two cores; later builds take seconds"
	began=$(date +%s)
	progress &
	watcher=$!
	status=0
	(
		unset GOOS GOARCH GO111MODULE
		CGO_ENABLED=0 GOWORK=off go build -C "$here/buildkite-agent" -v -mod=readonly -buildvcs=false -trimpath \
			-ldflags "-s -w -X $module/version.buildNumber=kbgen$sum" -o "$made" "$module"
	) >"$made.log" 2>&1 </dev/null || status=$?
	kill -KILL "$watcher" 2>/dev/null || : # a shell that has just forked may lose another signal, and would be waited for without end
	wait "$watcher" 2>/dev/null || :
	if [ "$status" != 0 ]; then
		why=$(grep -v '^go: downloading ' "$made.log" | grep -v '^#' | grep '[ :]' | head -n 1 || :)
		die "building buildkite-agent $pinned: ${why:-go build failed and does not say why};" \
			"check that GOPROXY serves Go modules, or put a buildkite-agent of at least $least on PATH"
	fi
	mv -f -- "$made" "$target"
	say "built bin/buildkite-agent $pinned in $(($(date +%s) - began)) s"
}

# claim takes the lock, a file that holds its owner's process id; it waits for
# an owner that lives. A lock saves a second build and no more than that: two
# builds at once do no harm.
claim() {
	watcher=
	told=
	empty=0
	until (set -C && echo $$ >"$lock") 2>/dev/null; do
		[ -e "$lock" ] || [ -w "$bin" ] || die "cannot write to $bin; make it writable, or put a buildkite-agent of at least $least on PATH"
		owner=$(cat "$lock" 2>/dev/null || :)
		case $owner in
		'' | *[!0-9]*) empty=$((empty + 1)) ;; # just being written, or left behind by a full disk
		*) if kill -0 "$owner" 2>/dev/null; then empty=0; else empty=10; fi ;;
		esac
		if [ "$empty" -ge 10 ]; then
			rm -f -- "$lock"
			empty=0
			continue
		fi
		[ -n "$told" ] || say "waiting for process ${owner:-?}, which builds it already"
		told=1
		sleep 1
	done
	trap 'rm -f -- "$lock" "$made" "$made.log"; kill "$watcher" 2>/dev/null || :' EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
}

if found=$(command -v buildkite-agent); then
	case $found in
	/*) ;;
	*) found=$(pwd)/$found ;; # PATH holds a relative directory
	esac
	version=$(version_of "$found")
	if [ -n "$version" ] && at_least "$version" "$least"; then
		printf '%s\n' "$found"
		exit 0
	fi
	say "not using $found: version ${version:-unknown}, want at least $least"
fi

if ! current; then
	command -v go >/dev/null ||
		die "no usable buildkite-agent, and no go on PATH to build one; install Go 1.26.5 or later, or a buildkite-agent of at least $least"
	mkdir -p -- "$bin" 2>/dev/null ||
		die "cannot make $bin; make it writable, or put a buildkite-agent of at least $least on PATH"
	claim
	current || build # the one waited for may have built it
fi
printf '%s\n' "$target"
