#!/bin/sh
# fuzz.sh runs every fuzz test of the module for FUZZTIME, one after another.
set -eu
cd "$(dirname "$0")/.."
git ls-files '*_test.go' | xargs grep -l '^func Fuzz' | while read -r file; do
	dir=./$(dirname "$file")
	case $dir in ./tools/*) continue ;; esac
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$file" | while read -r name; do
		echo "-- $dir $name"
		"${GO:-go}" test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-20s}" "$dir"
	done
done
