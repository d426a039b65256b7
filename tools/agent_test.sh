#!/bin/sh
# tools/agent_test.sh checks what tools/agent.sh picks, with fake agents and a
# fake go, in a copy of tools/ under a path with spaces. It builds nothing and
# takes a few seconds. Run: sh tools/agent_test.sh

set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
repo="$work/a repository"
failures=0

# fresh starts a case: a repository without bin/, and a PATH with the system's
# commands but neither an agent nor go, plus the case's own directory.
fresh() {
	rm -rf -- "$repo" "$work/path" "$work/system"
	mkdir -p "$repo/tools" "$work/path" "$work/system"
	cp -R "$here/agent.sh" "$here/buildkite-agent" "$here/ec2" "$repo/tools/"
	for c in awk cat chmod cksum cut date dirname grep head mkdir mv rm sed sh sleep; do
		ln -s "$(command -v "$c")" "$work/system/$c"
	done
}

# fake FILE TEXT makes an executable that prints TEXT.
fake() {
	mkdir -p "$(dirname "$1")"
	printf '#!/bin/sh\necho "%s"\n' "$2" >"$1"
	chmod +x "$1"
}

# fake_go BUILDER makes a go that notes its call and writes an agent whose
# version carries the build number asked for, or does what BUILDER says.
fake_go() {
	cat >"$work/path/go" <<-GO
		#!/bin/sh
		echo "\$* [\${GOOS-}]" >>"$work/calls"
		$1
		for a; do
			case \$a in *buildNumber=*) n=\${a##*buildNumber=} ;; esac
			[ "\${last-}" = -o ] && out=\$a
			last=\$a
		done
		printf '#!/bin/sh\necho buildkite-agent version 3.138.0+%s..dirty\n' "\$n" >"\$out"
		chmod +x "\$out"
	GO
	chmod +x "$work/path/go"
	: >"$work/calls"
}

run() {
	status=0
	(cd / && PATH="$work/path:$work/system" sh "$repo/tools/agent.sh") >"$work/out" 2>"$work/err" || status=$?
}

# expect NAME STATUS STDOUT [STDERR-PATTERN]
expect() {
	if [ "$status" != "$2" ] || [ "$(cat "$work/out")" != "$3" ] ||
		{ [ -n "${4:-}" ] && ! grep -q -e "$4" "$work/err"; }; then
		failures=$((failures + 1))
		printf 'FAIL %s: status %s, stdout "%s", want %s, "%s", /%s/; stderr:\n' "$1" "$status" "$(cat "$work/out")" "$2" "$3" "${4:-}"
		cat "$work/err"
	else
		printf 'ok   %s\n' "$1"
	fi
}

calls() { wc -l <"$work/calls" | tr -d ' '; }

check() { # check NAME GOT WANT
	status=0
	printf '%s' "$2" >"$work/out"
	: >"$work/err"
	expect "$1" 0 "$3"
}

built="$repo/bin/buildkite-agent"

for v in 3.122.0 3.122.1+1234.abc 3.138.0 3.1000.0 4.0.1 v4.0.1 10.0.0; do
	fresh
	fake "$work/path/buildkite-agent" "buildkite-agent version $v"
	run
	expect "PATH has $v: used" 0 "$work/path/buildkite-agent"
done

for v in 3.121.9 3.122.0-beta.1 3.99.999 2.200.0 3.13 unknown ''; do
	fresh
	fake "$work/path/buildkite-agent" "buildkite-agent version $v"
	fake_go ''
	run
	expect "PATH has '$v': refused, built" 0 "$built" "not using .*want at least 3.122.0"
done

fresh
fake "$work/path/buildkite-agent" ''
printf '#!/bin/sh\nexit 3\n' >"$work/path/buildkite-agent"
run
expect "PATH has one that fails, no go: error" 1 "" "^tools/agent.sh: error: .*no go on PATH"

fresh
fake "$built" "buildkite-agent version 3.138.0+9876.abcdef"
run
expect "bin/ has the pinned version: used without go" 0 "$built"

fresh
fake "$built" "buildkite-agent version 3.137.0"
fake_go ''
run
expect "bin/ has another version: built" 0 "$built" "building buildkite-agent 3.138.0"
run
expect "the second call" 0 "$built"
check "does not build again" "$(calls)" 1
echo '// changed' >>"$repo/tools/ec2/ec2.go"
run
expect "a call after the stand-in changed" 0 "$built"
check "builds again" "$(calls)" 2

fresh
fake_go ''
export GOOS=plan9 GOFLAGS=-mod=mod
run
unset GOOS GOFLAGS
expect "the caller's GOOS and GOFLAGS" 0 "$built"
check "do not reach the build" "$(grep -c -e '-mod=readonly.* \[\]$' "$work/calls")" 1

fresh
fake_go 'echo "go: downloading x v1" >&2; echo "go: x: 403 Forbidden" >&2; exit 1'
run
expect "the proxy refuses: one line" 1 "" "error: building .*: go: x: 403 Forbidden; check that GOPROXY"
check "nothing is left in bin/" "$(ls -A "$repo/bin")" ""

fresh
fake_go 'sleep 2'
(cd / && PATH="$work/path:$work/system" sh "$repo/tools/agent.sh") >"$work/first" 2>/dev/null &
other=$!
while [ ! -e "$repo/bin/.buildkite-agent.lock" ]; do sleep 0.1; done
run
wait "$other"
expect "a call during a build waits" 0 "$built" "waiting for process"
check "the first gets it too" "$(cat "$work/first")" "$built"
check "it is built once" "$(calls)" 1

fresh
fake_go ''
mkdir "$repo/bin"
sh -c 'echo $$' >"$repo/bin/.buildkite-agent.lock" # of a process that is gone
run
expect "the lock of a dead process" 0 "$built"
check "is taken and removed" "$(ls -A "$repo/bin")" buildkite-agent

if [ "$failures" -gt 0 ]; then
	printf '%s failed\n' "$failures"
	exit 1
fi
echo "all passed"
