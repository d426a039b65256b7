#!/bin/sh
# bench.sh prints figures: times of the road, of the tools, and sizes. It
# passes whatever they are.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
echo "-- sizes, stripped"
for name in kbgen kbrun kblaunch kblocal; do
	printf '%-10s %5.1f MB\n' "$name" "$(wc -c <"bin/$name" | awk '{print $1 / 1e6}')"
done
echo "-- the road: submission to result, without the evaluation itself; pick-up of jobs"
"$go" test ./e2e -run '^$' -bench . -benchtime 10x -count 1 | grep -v '^ok\|^PASS\|^goos\|^goarch\|^pkg'
echo "-- packages"
"$go" test -run '^$' -bench . -benchtime 200ms $("$go" list ./... | grep -v /e2e) | grep '^Benchmark' || echo "none"
