#!/bin/sh
# demo.sh runs the main job on this machine: the stand-in for Buildkite, two real
# agents, a right submission and a wrong one by kblaunch; then the competition's
# backend on a database of its own, and a submission by popcorn-cli's protocol.
#
#   demo.sh          ends when all of it has been shown; nothing is left running
#   demo.sh serve    the backend alone, until it is interrupted
set -eu
cd "$(dirname "$0")/.."
bin=${BIN:-$PWD/bin}
agent=$(sh tools/agent.sh)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# The stand-in tells the backend of builds that ended, so both have to know the port.
port=0 # any that is free
if [ "${1-}" = serve ]; then port=${PORT:-8080}; fi
port=$(python3 -c '
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    s.bind(("127.0.0.1", int(sys.argv[1])))
except (OSError, OverflowError, ValueError) as e:
    sys.exit("port %s of 127.0.0.1 cannot be used: %s\nPORT names another, 0 any that is free: make serve PORT=0" % (sys.argv[1], e))
print(s.getsockname()[1])' "$port")
KBLOCAL_WEBHOOK_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export KBLOCAL_WEBHOOK_SECRET
KBLOCAL_AGENT=$agent "$bin/kblocal" exec --verbose --queue bootstrap=1 --queue cpu=1 \
	--webhook "http://127.0.0.1:$port/webhooks/buildkite" -- sh tools/demo_inside.sh "$bin" "$dir" "$port" "${1-}"
