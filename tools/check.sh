#!/bin/sh
# check.sh is what a reviewer runs first: format, module files, vet,
# staticcheck. It changes nothing and says what it found.
set -u
cd "$(dirname "$0")/.." || exit 1
go=${GO:-go}
failed=0
step() {
	printf '%s\n' "-- $1"
	shift
	"$@" || failed=1
}
unformatted() {
	found=$(git ls-files -z '*.go' | xargs -0 gofmt -l) || return 1
	[ -z "$found" ] || {
		printf '%s\n' "$found"
		return 1
	}
}
staticcheck() {
	"$go" -C tools/staticcheck build -o "$PWD/bin/staticcheck" honnef.co/go/tools/cmd/staticcheck &&
		bin/staticcheck ./... && (cd tools/ec2 && ../../bin/staticcheck ./...) && (cd tools/release && ../../bin/staticcheck ./...)
}
mkdir -p bin
step gofmt unformatted
step 'go mod tidy' "$go" mod tidy -diff
step 'go mod tidy (tools/ec2)' "$go" -C tools/ec2 mod tidy -diff
step 'go mod tidy (tools/release)' "$go" -C tools/release mod tidy -diff
step 'go vet' "$go" vet ./...
step 'go vet (otel)' "$go" vet -tags otel ./server/... ./cmd/kbserve
step 'go vet (tools)' "$go" -C tools/ec2 vet ./...
step 'go vet (tools)' "$go" -C tools/release vet ./...
step staticcheck staticcheck
exit "$failed"
