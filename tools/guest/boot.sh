#!/bin/sh
# boot.sh starts, wakes and stops guests. GUEST is a directory for one of them.
#
#   boot.sh GUEST             new: a copy of the sleeping machine, docker up, in seconds
#   boot.sh --cold GUEST      new: from power-on (RAM_MB, CPUS; default 4096, 2), with the images
#   boot.sh --again GUEST     power-on again with the disk it has
#   boot.sh --cut GUEST       pull the plug: what was not synced is gone (and, without
#                             DISK_CACHE=writeback at its start, perhaps some of what was)
#   boot.sh --stop GUEST      shut down in order
#   boot.sh --freeze GUEST    store memory in GUEST/state, quit (build.sh)
#
# --cache DIR before GUEST names build.sh's CACHE. Nothing in CACHE changes:
# each new guest starts clean. Waits until a command can run in it, WAIT seconds (180).
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kbgen-guest
how=warm
while [ $# -gt 1 ]; do
	case $1 in
	--cache) cache=$2; shift ;;
	--cold | --again | --cut | --stop | --freeze) how=${1#--} ;;
	*) echo "boot.sh: error: got $1, want one of the options above" >&2; exit 2 ;;
	esac
	shift
done
[ $# = 1 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
guest=$(CDPATH='' cd -- "$1" && pwd -P)
say() { printf 'boot.sh: %s\n' "$*" >&2; }

# qmp tells QEMU to do something and waits until it has.
qmp() {
	python3 - "$guest" "$@" <<'P'
import json, os, socket, sys, time
guest, words = sys.argv[1], sys.argv[2:]
os.chdir(guest)  # a socket's name is short
s = socket.socket(socket.AF_UNIX)
s.connect("qmp")
f = s.makefile("rw")
def ask(name, **arguments):
    f.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
    f.flush()
    for line in f:
        answer = json.loads(line)
        if "error" in answer:
            sys.exit(f"boot.sh: error: QEMU: {answer['error']['desc']}")
        if "return" in answer:
            return answer["return"]
f.readline()
ask("qmp_capabilities")
if words[0] == "freeze":
    ask("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
    ask("migrate", uri="exec:cat > state")
    while (status := ask("query-migrate").get("status")) not in ("completed", "failed"):
        time.sleep(0.2)
    if status == "failed":
        sys.exit("boot.sh: error: QEMU could not store the memory")
    ask("quit")
else:
    ask(words[0])
P
}

pid=$(cat "$guest/pid" 2>/dev/null) || : # QEMU takes the file away itself when it ends in order
gone() { # waits until QEMU has ended
	n=0
	while kill -0 "$pid" 2>/dev/null; do
		n=$((n + 1)); [ $n -lt "$1" ] || return 1
		sleep 0.1
	done
	rm -f "$guest/pid" "$guest/ssh"
}

case $how in
cut) kill -KILL "$pid"; gone 100; exit ;;
stop)
	"$here/run.sh" "$guest" 'systemctl poweroff' >/dev/null 2>&1 || :
	gone "$((${WAIT:-180} * 10))" || { say "error: it does not stop, pulling the plug"; kill -KILL "$pid"; gone 100; exit 1; }
	exit ;;
freeze) qmp freeze; gone 600; exit ;;
again) cache=$(cat "$guest/cache") ;;
cold | warm)
	[ ! -e "$guest/disk.qcow2" ] || { say "error: $guest has a disk already: --again, or another directory"; exit 1; }
	cache=$(CDPATH='' cd -- "$cache" && pwd -P)
	printf '%s\n' "$cache" >"$guest/cache"
	from=warm; [ -s "$cache/warm.qcow2" ] || from=disk # build.sh's own first boot
	qemu-img create -q -f qcow2 -F qcow2 -b "$cache/$from.qcow2" "$guest/disk.qcow2" ;;
esac

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf '%s\n' "$port" >"$guest/port"
# Without cx16, for TCG of QEMU 7.2 spoils the flags behind cmpxchg16b.
set -- -name guest -machine pc -accel tcg,thread=multi,tb-size=512 -cpu max,-cx16,-la57 \
	-smp "${CPUS:-2}" -m "${RAM_MB:-4096}" -nodefaults -display none -no-user-config \
	-kernel "$cache/vmlinuz" -initrd "$cache/initrd" \
	-append 'console=ttyS0 quiet net.ifnames=0 mitigations=off apparmor=0 selinux=0 audit=0 no_timer_check tsc=reliable random.trust_cpu=on systemd.show_status=0 systemd.default_timeout_start_sec=900 systemd.default_device_timeout_sec=900' \
	-drive "file=$guest/disk.qcow2,if=none,id=disk,cache=${DISK_CACHE:-unsafe},discard=unmap" -device virtio-blk-pci,drive=disk \
	-netdev "user,id=net,hostfwd=tcp:127.0.0.1:$port-:22" -device virtio-net-pci,netdev=net,romfile= \
	-device virtio-rng-pci -chardev "file,id=console,path=$guest/console.log,append=on" -serial chardev:console \
	-qmp "unix:$guest/qmp,server=on,wait=off" -pidfile "$guest/pid"
[ $how != warm ] || set -- "$@" -incoming "exec:cat '$cache/warm.state'"
# Its own session, so that an interrupt of a test does not stop it halfway.
start() { (cd "$guest" && exec setsid qemu-system-x86_64 "$@" </dev/null >>qemu.log 2>&1) & }
: >"$guest/console.log"
start "$@"

panics=0
until=$(($(date +%s) + ${WAIT:-180}))
until [ "$(GUEST_TIMEOUT=30 "$here/run.sh" "$guest" "date -s @$(date +%s) >/dev/null; echo up" 2>/dev/null)" = up ]; do
	# Without hardware help a kernel sometimes dies while it starts its processors.
	if grep -q 'Kernel panic' "$guest/console.log" && [ $panics -lt 3 ]; then
		panics=$((panics + 1))
		say "the kernel panicked, starting again"
		pid=$(cat "$guest/pid") && kill -KILL "$pid" && gone 100
		: >"$guest/console.log"
		start "$@"
	fi
	if [ "$(date +%s)" -ge $until ] || { [ -s "$guest/pid" ] && ! kill -0 "$(cat "$guest/pid")" 2>/dev/null; }; then
		say "error: no answer; $guest/console.log and qemu.log say:"
		tail -n 20 "$guest/console.log" "$guest/qemu.log" >&2
		exit 1
	fi
	sleep 0.3
done
"$here/run.sh" "$guest" "date -s @$(date +%s) >/dev/null" # the first answer took as long as the waking
