#!/bin/sh
# demo.sh runs the main job on this machine: the stand-in for Buildkite, two
# real agents, a right submission and a wrong one. Nothing is left running.
set -eu
cd "$(dirname "$0")/.."
bin=${BIN:-$PWD/bin}
agent=$(sh tools/agent.sh)
KBLOCAL_AGENT=$agent exec "$bin/kblocal" exec --verbose --queue bootstrap=1 --queue cpu=1 -- sh -c '
	set -u
	bin=$1
	bold= plain=
	if [ -t 1 ] && [ -z "${NO_COLOR-}" ]; then bold=$(printf "\033[1m") plain=$(printf "\033[0m"); fi
	say() { printf "\n%s%s%s\n" "$bold" "$*" "$plain"; }
	say "A right submission: kblaunch submit vectoradd_py right --gpu CPU_BK --mode leaderboard"
	"$bin/kblaunch" submit vectoradd_py right --gpu CPU_BK --mode leaderboard --timing || exit 1
	say "A wrong one: kblaunch submit vectoradd_py wrong --gpu CPU_BK --mode test"
	"$bin/kblaunch" submit vectoradd_py wrong --gpu CPU_BK --mode test
	status=$?
	printf "(exit status %s: a verdict against the submission)\n" "$status"
	[ "$status" = 1 ]
' demo "$bin"
