: > isolation.txt
failed=0
say() { printf '%s\n' "$*" | tee -a isolation.txt; }
good() { say "ok   $*"; }
bad() { say "FAIL $*"; failed=1; }
case $KERNELBOT_VENDOR in
nvidia) nodes=$(ls -d /dev/nvidia[0-9]* 2> /dev/null || true) ;;
amd) nodes=$(ls -d /dev/dri/renderD* 2> /dev/null || true) ;;
google) nodes=$(ls -d /dev/accel[0-9]* /dev/vfio/[0-9]* 2> /dev/null || true) ;;
*) nodes= ;;
esac
opens() {
  case $(LC_ALL=C head -c 0 "$1" 2>&1 || true) in
  *"not permitted"* | *"ermission denied"*) return 1 ;;
  esac
}
seen=0
opened=0
for node in $nodes; do
  seen=$((seen + 1))
  if opens "$node"; then opened=$((opened + 1)); fi
done
if [ "$seen" -ne "$KERNELBOT_GPUS" ]; then bad "sees $seen device(s) and may open $opened of them, want $KERNELBOT_GPUS"
elif [ "$opened" -ne "$KERNELBOT_GPUS" ]; then bad "may open $opened of $seen device(s): the control group denies the others"
else good "sees $KERNELBOT_GPUS device(s)"; fi
case $KERNELBOT_VENDOR in
nvidia) name=/dev/nvidia major=195 minor=0 ;;
amd) name=/dev/dri/renderD major=226 minor=128 ;;
*) name= minor=0 ;;
esac
last=$((minor + 64))
while [ -n "$name" ] && [ "$minor" -lt "$last" ]; do
  if [ ! -e "$name$minor" ] && mknod "/tmp/gpu$minor" c "$major" "$minor" 2> /dev/null; then
    if opens "/tmp/gpu$minor"; then bad "opens a device node that it made, for $name$minor"; fi
    rm -f "/tmp/gpu$minor"
  fi
  minor=$((minor + 1))
done
if env | grep -Eq "^BUILDKITE_AGENT_(ACCESS_TOKEN|JOB_API_TOKEN|TOKEN)="; then bad "a token of the agent is in the environment"; else good "no token of the agent"; fi
if env | grep -q "^BUILDKITE_AGENT_JOB_API_SOCKET="; then bad "the Job API's socket is in the environment"; else good "no Job API"; fi
if command -v buildkite-agent > /dev/null; then bad "the agent's binary is in the container"; else good "no agent binary"; fi
if [ -e /var/run/docker.sock ]; then bad "the docker socket is in the container"; else good "no docker socket"; fi
if grep -Eq "^CapEff:[[:space:]]*0+$" /proc/self/status; then good "no capabilities"; else bad "has capabilities: $(grep ^CapEff: /proc/self/status)"; fi
if grep -Eq "^NoNewPrivs:[[:space:]]*1$" /proc/self/status; then good "cannot gain privileges"; else bad "may gain privileges"; fi
if [ "$(id -u)" -ne 0 ]; then good "is not root"; else bad "is root"; fi
up=
for name in $(ls /sys/class/net); do
  if [ "$name" != lo ] && [ "$(cat "/sys/class/net/$name/operstate" 2> /dev/null)" != down ]; then up="$up $name"; fi
done
if [ -z "$up" ]; then good "no network"; else bad "has a network:$up"; fi
cores=$(nproc)
all=$(grep -c "^processor" /proc/cpuinfo || true)
quota=$(cut -d " " -f 1 /sys/fs/cgroup/cpu.max 2> /dev/null || true)
period=$(cut -d " " -f 2 /sys/fs/cgroup/cpu.max 2> /dev/null || true)
case ${quota:-none} in
max | none) quota= ;;
esac
if [ -n "$quota" ] && [ "$quota" -lt "$((KERNELBOT_CPUS * period))" ]; then bad "CPU quota $quota of $period, want that of $KERNELBOT_CPUS cores"
elif [ -n "$quota" ]; then good "CPU time of $((quota / period)) cores"
elif [ "$cores" -ge "$((all))" ] && [ "$cores" -gt "$KERNELBOT_CPUS" ]; then bad "$cores cores, all of the machine, want $KERNELBOT_CPUS"
elif [ "$cores" -lt "$KERNELBOT_CPUS" ]; then bad "$cores cores, want $KERNELBOT_CPUS"
else good "$cores of $((all)) cores"; fi
memory=$(cat /sys/fs/cgroup/memory.max 2> /dev/null || true)
case ${memory:-none} in
max | none) bad "no memory limit in the container: one that the node's slice alone has ends a job without warning" ;;
*) if [ "$memory" -ge "$((KERNELBOT_MEMORY_GIB * 1073741824))" ]; then good "memory limit $memory"; else bad "memory limit $memory, want $KERNELBOT_MEMORY_GIB GiB"; fi ;;
esac
if [ "$(cat /sys/fs/cgroup/pids.max 2> /dev/null || echo max)" = max ]; then say "note no limit on processes in the container: only the node's slice may have one"; else good "a limit on processes"; fi
exit "$failed"
