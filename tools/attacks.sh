#!/bin/sh
# Runs the corpus of attacks (runner/testdata/attacks) against kbrun and prints
# what each tried, what came of it, and the figure of a program that passes beside
# its work. A figure below the work is a failure. The exit status is the test's: 0 when
# everything held. See docs/attacks.md.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}

out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0
cd runner # there go test prints what a test that passes prints
KBGEN_SLOW_TESTS=1 "$go" test -count=1 -timeout 40m -run '^(TestManifestIsWhole|TestUsualManifestIsWhole|TestSlowAttacks|TestSlowAttacksOnHarnesses|TestHostilePayloads)$' -table >"$out" 2>&1 || status=$?
cat "$out"
count() { awk -v w="$1" '$1 != "AS" && $0 ~ "  " w {n++} END {print n+0}' "$out"; }
echo "$(count 'held *$') held, $(count 'passed *$') honest passed, $(count 'OPEN *$') open, $(count 'NEEDS') not tried, $(count 'ambiguous *$') ambiguous, $(count 'FAILED *$') failed"
exit "$status"
