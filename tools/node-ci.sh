#!/bin/sh
# node-ci.sh runs the parts NODE_CI of make node-test for at most 15 minutes. It
# fails if a part fails twice: the guest computes thirty times slower than this
# machine, and other load makes it miss its time limits. It says NOT RUN if
# the guest cannot be built here, or if the time is over.
set -eu
cd "$(dirname "$0")/.."
not_run() {
	echo "node-ci.sh: NOT RUN: make node-test, $1"
	exit 0
}
if [ "$(id -u)" != 0 ] || ! command -v qemu-system-x86_64 >/dev/null || ! command -v mmdebstrap >/dev/null; then
	not_run 'which needs root, QEMU and mmdebstrap'
fi
timeout 600 sh tools/guest/build.sh || not_run 'because its machine could not be built'
echo "node-ci.sh: runs $NODE_CI; NOT RUN: the other parts, among them own_disk, doctor, verify and power cuts"
deadline=$(($(date +%s) + 900))
for try in 1 2; do
	status=0
	timeout $((deadline - $(date +%s))) make node-test NODE="^TestNode\$\$/^($NODE_CI)\$\$" || status=$?
	case $status in
	0) exit 0 ;;
	124) echo 'node-ci.sh: NOT RUN to its end: make node-test, after 15 minutes' && exit 0 ;;
	esac
	[ "$(date +%s)" -lt $((deadline - 300)) ] || break
	echo "node-ci.sh: try $try of make node-test failed"
done
exit "$status"
