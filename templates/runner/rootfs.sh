#!/bin/sh
# rootfs.sh makes the base of kbgen's CPU runner image from Debian's packages.
#
#   sh rootfs.sh OUT.tar [SUITE [MIRROR]]
#   sh rootfs.sh --directory DIR [SUITE [MIRROR]]
#
# OUT.tar becomes a root file system with a minimal Debian and python3, for
# docker import; DIR, which must not exist, the same unpacked. SUITE and MIRROR
# are what this machine's own apt uses unless given. Packages are checked against
# Debian's keys. Needs root, debootstrap, about a minute and 300 MB under TMPDIR.
# Two runs with the same packages give the same file. Exit status: 0 with a whole
# OUT, 1 without any.
set -eu

say() { printf 'rootfs.sh: %s\n' "$*" >&2; }
die() {
	say "error: $*"
	exit 1
}

unpacked=
if [ "${1:-}" = --directory ]; then
	unpacked=1
	shift
fi
out=${1:?usage: sh rootfs.sh OUT.tar [SUITE [MIRROR]]}
suite=${2:-$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}")}
mirror=${3:-$(apt-get indextargets --format '$(REPO_URI)' "Codename: $suite" 'Component: main' 'Created-By: Packages' 2>/dev/null | head -n 1)}
[ -n "$suite" ] && [ -n "$mirror" ] || die "this machine's apt names no suite and mirror of Debian; give them as SUITE MIRROR"

[ "$(id -u)" = 0 ] || die 'debootstrap needs root'
command -v debootstrap >/dev/null || die 'no debootstrap on PATH; apt-get install debootstrap'
[ -z "$unpacked" ] || [ ! -e "$out" ] || die "$out is there already"

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work" "$out.part"' EXIT
trap 'exit 1' HUP INT TERM

if ! debootstrap --variant=minbase --include=python3 "$suite" "$work/root" "$mirror" >"$work/log" 2>&1; then
	tail -n 5 "$work/log" >&2
	die "debootstrap of $suite from $mirror ended with the lines above"
fi

# What no job reads, and what differs from run to run.
(
	cd "$work/root"
	rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/* var/cache/ldconfig/* \
		usr/share/doc/* usr/share/man/* usr/share/info/* usr/share/locale/* tmp/* run/* \
		etc/machine-id etc/hostname etc/resolv.conf etc/*- var/lib/dpkg/*-old
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
)
if [ -n "$unpacked" ]; then
	mv -- "$work/root" "$out"
	exit
fi
tar -C "$work/root" --sort=name --mtime=@0 --numeric-owner --one-file-system -cf "$out.part" .
mv -- "$out.part" "$out"
