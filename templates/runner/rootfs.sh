#!/bin/sh
# rootfs.sh makes the base of kbgen's CPU runner image from Debian's packages.
#
#   sh rootfs.sh OUT.tar [SUITE [MIRROR]]
#
# OUT.tar becomes a root file system with a minimal Debian and python3, for
# docker import. SUITE is bookworm, MIRROR http://deb.debian.org/debian unless
# given. Packages are checked against Debian's keys. Needs root, debootstrap,
# about a minute and 300 MB under TMPDIR. Two runs with the same packages give
# the same file. Exit status: 0 with a whole OUT.tar, 1 without any.
set -eu

out=${1:?usage: sh rootfs.sh OUT.tar [SUITE [MIRROR]]}
suite=${2:-bookworm}
mirror=${3:-http://deb.debian.org/debian}

say() { printf 'rootfs.sh: %s\n' "$*" >&2; }
[ "$(id -u)" = 0 ] || { say 'error: debootstrap needs root'; exit 1; }
command -v debootstrap >/dev/null || { say 'error: no debootstrap on PATH; apt-get install debootstrap'; exit 1; }

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work" "$out.part"' EXIT
trap 'exit 1' HUP INT TERM

if ! debootstrap --variant=minbase --include=python3 "$suite" "$work/root" "$mirror" >"$work/log" 2>&1; then
	tail -n 5 "$work/log" >&2
	say "error: debootstrap of $suite from $mirror ended with the lines above"
	exit 1
fi

# What no job reads, and what differs from run to run.
(
	cd "$work/root"
	rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/* var/cache/ldconfig/* \
		usr/share/doc/* usr/share/man/* usr/share/info/* usr/share/locale/* tmp/* run/* \
		etc/machine-id etc/hostname etc/resolv.conf etc/*- var/lib/dpkg/*-old
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
)
tar -C "$work/root" --sort=name --mtime=@0 --numeric-owner --one-file-system -cf "$out.part" .
mv -- "$out.part" "$out"
