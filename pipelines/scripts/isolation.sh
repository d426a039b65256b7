: > isolation.txt
failed=0
say() { printf '%s\n' "$*" | tee -a isolation.txt; }
good() { say "ok   $*"; }
bad() { say "FAIL $*"; failed=1; }
case $KERNELBOT_VENDOR in
nvidia) nodes=$(ls /dev/nvidia[0-9]* 2> /dev/null | wc -l) ;;
amd) nodes=$(ls /dev/dri/renderD* 2> /dev/null | wc -l) ;;
google) nodes=$(ls -d /dev/accel[0-9]* /dev/vfio/[0-9]* 2> /dev/null | wc -l) ;;
*) nodes=0 ;;
esac
if [ "$((nodes))" -eq "$KERNELBOT_GPUS" ]; then good "sees $KERNELBOT_GPUS device(s)"; else bad "sees $((nodes)) device(s), want $KERNELBOT_GPUS"; fi
minor=0
while [ "$minor" -lt 16 ]; do
  if [ "$KERNELBOT_VENDOR" = nvidia ] && [ ! -e "/dev/nvidia$minor" ] && mknod "/tmp/gpu$minor" c 195 "$minor" 2> /dev/null; then
    if head -c 0 "/tmp/gpu$minor" 2> /dev/null; then bad "opens a device node that it made for GPU $minor"; fi
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
if [ "$(nproc)" -le "$KERNELBOT_CPUS" ]; then good "$(nproc) cores"; else
  quota=$(cut -d " " -f 1 /sys/fs/cgroup/cpu.max 2> /dev/null || echo none)
  period=$(cut -d " " -f 2 /sys/fs/cgroup/cpu.max 2> /dev/null || echo 100000)
  case $quota in
  max | none) bad "$(nproc) cores, want $KERNELBOT_CPUS" ;;
  *) if [ "$quota" -le "$((KERNELBOT_CPUS * period))" ]; then good "CPU time of $KERNELBOT_CPUS cores"; else bad "CPU quota $quota of $period"; fi ;;
  esac
fi
memory=$(cat /sys/fs/cgroup/memory.max 2> /dev/null || echo none)
case $memory in
max | none) bad "no memory limit" ;;
*) if [ "$memory" -le "$((KERNELBOT_MEMORY_GIB * 1073741824))" ]; then good "memory limit $memory"; else bad "memory limit $memory, want $KERNELBOT_MEMORY_GIB GiB"; fi ;;
esac
if [ "$(cat /sys/fs/cgroup/pids.max 2> /dev/null || echo max)" = max ]; then say "note no limit on processes seen from here, the node's slice may have one"; else good "a limit on processes"; fi
exit "$failed"
