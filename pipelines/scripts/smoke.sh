: > smoke.txt
say() { printf '%s\n' "$*" | tee -a smoke.txt; }
say "GPU type $KERNELBOT_GPU, queue $KERNELBOT_QUEUE, $(uname -sm), $(nproc) cores"
command -v kbrun > /dev/null || { say "kbrun is not on PATH"; exit 1; }
say "$(kbrun --version)"
say "$(python3 --version)"
case $KERNELBOT_VENDOR in
none) found=0 ;;
nvidia) nvidia-smi -L | tee -a smoke.txt; found=$(nvidia-smi -L | grep -c "^GPU " || :) ;;
amd) found=$(ls /dev/dri/renderD* | wc -l) ;;
google) found=$(ls -d /dev/accel[0-9]* /dev/vfio/[0-9]* 2> /dev/null | wc -l) ;;
*) say "vendor $KERNELBOT_VENDOR is unknown here"; exit 1 ;;
esac
say "devices: $((found)), want $KERNELBOT_GPUS"
[ "$((found))" -eq "$KERNELBOT_GPUS" ]
