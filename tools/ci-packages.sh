#!/bin/sh
# ci-packages.sh installs the Debian packages that CI needs, if it may. Tests say
# what they did not run for want of a program.
set -eu
cd "$(dirname "$0")/.."

# missing PROGRAM... reports whether a program is not installed.
missing() {
	for program; do
		command -v "$program" >/dev/null || return 0
	done
	return 1
}

wanted=
if ! sh tools/need.sh; then wanted='git make gcc libc6-dev python3'; fi
# For script tests and pages: other shells, a browser, a database, and a tracer of processes.
if missing curl zsh fish chromium strace || ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then
	wanted="$wanted curl zsh fish chromium strace fonts-noto-color-emoji postgresql"
fi
# For the example of a proxy in docs/kbserve.md.
if missing nginx && [ ! -x /usr/sbin/nginx ]; then wanted="$wanted nginx-light"; fi
# For releases: a fresh Debian to install packages in, and a look into an rpm.
if missing debootstrap rpm; then wanted="$wanted debootstrap rpm"; fi
# For the booted machine of make node-test.
if missing qemu-system-x86_64 qemu-img mmdebstrap mkfs.ext4 ssh cpio; then
	wanted="$wanted qemu-system-x86 qemu-utils mmdebstrap cpio xz-utils e2fsprogs openssh-client"
fi
if [ -z "$wanted" ]; then exit 0; fi
if missing apt-get || [ "$(id -u)" != 0 ]; then
	echo "ci-packages.sh: not installed, which needs apt-get and root:$wanted"
	exit 0
fi
apt-get update -q
# shellcheck disable=SC2086 # names of packages
apt-get install -qy --no-install-recommends $wanted || echo "ci-packages.sh: could not install:$wanted"
