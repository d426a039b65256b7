#!/bin/sh
# need.sh says, one line each, what this machine lacks to build and test kbgen.
set -u
missing=0
lack() {
	printf 'kbgen needs %s: %s\n' "$1" "$2" >&2
	missing=1
}
go=${GO:-go}
if ! command -v "$go" >/dev/null 2>&1; then
	lack 'Go 1.26 or newer' 'https://go.dev/doc/install'
else
	# "go1.26.8" or "go1.27rc1"; the toolchain named in go.mod is only fetched
	# where GOTOOLCHAIN allows it.
	version=$(cd "$(dirname "$0")/.." && "$go" env GOVERSION 2>/dev/null)
	minor=$(printf '%s' "$version" | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
	if [ -n "$minor" ] && [ "$minor" -lt 26 ]; then
		lack 'Go 1.26 or newer' "found $version, see https://go.dev/doc/install"
	fi
fi
command -v git >/dev/null 2>&1 || lack git 'install the package git'
command -v python3 >/dev/null 2>&1 || lack 'Python 3.9 or newer' 'install the package python3'
command -v "${CC:-cc}" >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 ||
	lack 'a C compiler' 'install the package gcc (the race detector is linked with it)'
exit "$missing"
