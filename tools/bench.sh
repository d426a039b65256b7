#!/bin/sh
# bench.sh prints figures: the time of each package's tests, sizes, the times of
# tools and of whole submissions, and the packages' benchmarks. It passes whatever
# they are.
#
# Everything is built before anything is measured. A benchmark that compares
# runs its programs in turn and reports medians; of the others, which run three
# times, the median run is shown.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
tests=$(mktemp -d)
trap 'rm -rf "$tests"' EXIT
trap 'exit 1' HUP INT TERM

packages=$(git ls-files '*_test.go' | grep -v '^tools/' | xargs grep -l '^func Benchmark' | xargs -n 1 dirname | sort -u)
for package in $packages; do
	"$go" test -c -o "$tests/$(echo "$package" | tr / -).test" "./$package"
done

# run PACKAGE FLAG... prints the lines of its benchmarks.
run() {
	package=$1
	shift
	(cd "$package" && "$tests/$(echo "$package" | tr / -).test" -test.run '^$' -test.bench . "$@") | grep '^Benchmark' || :
}

# median keeps, of the runs of each benchmark, the one in the middle by ns/op.
median() {
	sort -k1,1 -k3,3n | awk '
		$1 != name { if (n) print line[int((n + 1) / 2)]; name = $1; n = 0 }
		{ line[++n] = $0 }
		END { if (n) print line[int((n + 1) / 2)] }'
}

echo "-- seconds of each package's tests, the slowest first"
"$go" test -count=1 -p 1 ./... 2>&1 | awk '$1 == "ok" || $1 == "FAIL" && NF == 3 {sub(/s$/, "", $3); printf "%8.1f  %s%s\n", $3, $2, $1 == "ok" ? "" : " (failed)"}' | sort -rn
echo "-- sizes, stripped"
for name in kbgen kbrun kbrun-nvml kblaunch kbserve kbnode kblocal; do
	printf '%-10s %5.1f MB\n' "$name" "$(wc -c <"bin/$name" | awk '{print $1 / 1e6}')"
done
echo "-- kbgen from start to end, beside an empty program; kbrun over bare Python"
for package in cmd/kbgen cmd/kbrun; do
	[ ! -e "$tests/$(echo "$package" | tr / -).test" ] || run "$package" -test.benchtime 40x
done
echo "-- submission to result, without the evaluation itself; pick-up of jobs"
run e2e -test.benchtime 10x
echo "-- packages"
for package in $packages; do
	case $package in
	e2e | cmd/kbgen | cmd/kbrun) ;;
	store) ;; # below: it fills two databases
	*) run "$package" -test.benchtime 200ms -test.count 3 | median ;;
	esac
done
echo "-- kbserve's database, ${KBGEN_BENCH_RUNS:-100000} runs (KBGEN_BENCH_RUNS=1000000 takes ten minutes)"
run store -test.benchtime 1000x
