#!/bin/sh
# tools/plugins.sh puts the docker plugin that kbgen's steps name into bin/plugins,
# where kblocal finds it, so that pipelines with it run without a network.
#
#   sh tools/plugins.sh
#
# The commit is pinned: a tag can be moved. Where GitHub cannot be reached it says
# so, and what to do, and that is no failure: pipelines without plugins need none.
# KBGEN_PLUGINS_FROM is where to clone from instead. Exit status: 0, or 1 when what
# came is not what is pinned.

set -eu

name=docker-buildkite-plugin
from=${KBGEN_PLUGINS_FROM:-https://github.com/buildkite-plugins}/$name

say() { printf 'tools/plugins.sh: %s\n' "$*" >&2; }

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
dir=$(dirname -- "$here")/bin/plugins
# pinned prints a constant of schema/plugin.go.
pinned() { sed -n "s/^.*$1 *= \"\([^\"]*\)\".*/\1/p" "$here/../schema/plugin.go"; }
version=$(pinned PluginVersion)
commit=$(pinned PluginCommit)
target=$dir/$name

at() { git -C "$1" rev-parse --verify --quiet "$version^{commit}" 2>/dev/null || :; }

[ "$(at "$target")" = "$commit" ] && exit 0
mkdir -p "$dir"
made=$(mktemp -d "$dir/.new.XXXXXX")
trap 'rm -rf "$made"' EXIT
if ! GIT_TERMINAL_PROMPT=0 timeout 60 git clone --quiet --depth 1 --branch "$version" "$from" "$made/$name" 2>/dev/null; then
	say "the docker plugin cannot be had from $from"
	say "put a clone of it with the tag $version at $target, or name its directory: kblocal run --plugins DIR"
	exit 0
fi
got=$(at "$made/$name")
if [ "$got" != "$commit" ]; then
	say "error: $version at $from is commit $got, want $commit"
	exit 1
fi
rm -rf "$target"
mv "$made/$name" "$target"
