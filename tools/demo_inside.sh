#!/bin/sh
# demo_inside.sh is what the demo does inside of the stand-in; demo.sh starts it.
set -eu
bin=$1 dir=$2 port=$3 only=$4
url=http://127.0.0.1:$port
bold= plain=
if [ -t 1 ] && [ -z "${NO_COLOR-}" ]; then bold=$(printf "\033[1m") plain=$(printf "\033[0m"); fi
say() { printf "\n%s%s%s\n" "$bold" "$*" "$plain"; }

if [ -z "$only" ]; then
	say "A right submission: kblaunch submit vectoradd_py right --gpu CPU_BK --mode leaderboard"
	"$bin/kblaunch" submit vectoradd_py right --gpu CPU_BK --mode leaderboard --timing
	say "A wrong one: kblaunch submit vectoradd_py wrong --gpu CPU_BK --mode test"
	status=0
	"$bin/kblaunch" submit vectoradd_py wrong --gpu CPU_BK --mode test || status=$?
	printf "(exit status %s: a verdict against the submission)\n" "$status"
	[ "$status" = 1 ]
fi

say "The competition's backend: kbserve serve"
export KBSERVE_DATABASE="sqlite:$dir/kbserve.db" KBSERVE_API_URL="$KBLAUNCH_API_URL" KBSERVE_WEBHOOK_TOKEN="$KBLOCAL_WEBHOOK_SECRET"
export KBSERVE_LISTEN="127.0.0.1:$port" KBSERVE_NAME="The demo's competition"
"$bin/kbserve" db migrate
for task in vectoradd_py sort_py matmul_py; do
	"$bin/kbserve" board create "$task" "examples/$task" --deadline 2100-01-01 --gpu CPU_BK
done
POPCORN_CLI_ID=$("$bin/kbserve" user create 1001 --name ann)
export POPCORN_CLI_ID
"$bin/kbserve" serve --rate 0 --pid-file "$dir/pid" 2>"$dir/log" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null || true' EXIT
# The file says that this server answers: /ready may be answered by another on its port.
tries=0
until [ -s "$dir/pid" ]; do
	tries=$((tries + 1))
	if [ "$tries" -gt 600 ] || ! kill -0 "$server" 2>/dev/null; then
		cat "$dir/log" >&2
		exit 1
	fi
	sleep 0.1
done

say "A submission by popcorn-cli's protocol: POST /submission/vectoradd_py/CPU_BK/leaderboard"
if ! "$bin/popcorn" "$url" vectoradd_py CPU_BK leaderboard examples/vectoradd_py/submissions/right.py; then
	echo "The end of the server's log:" >&2
	tail -n 20 "$dir/log" >&2
	if [ -z "$only" ]; then exit 1; fi
	echo "This submission has no result, which can happen on a busy machine. The server goes on: submit again." >&2
fi
"$bin/kbserve" board show vectoradd_py
if [ -z "$only" ]; then
	echo "The board: $url/b/vectoradd_py (make serve keeps it up)"
	exit 0
fi
echo "The board: $url/b/vectoradd_py, until Ctrl-C"
echo "Log in:    $("$bin/kbserve" user login 1001 --url "$url")"
echo "Submit:    POPCORN_CLI_ID=$POPCORN_CLI_ID $bin/popcorn $url vectoradd_py CPU_BK test FILE"
echo "Log:       $dir/log"
status=0
wait "$server" || status=$?
tail -n 20 "$dir/log" >&2
exit "$status"
