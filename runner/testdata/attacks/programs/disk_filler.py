# 500 MB at most, allocated without being written.
from attack import *


def go():
    for place in (os.environ.get("TMPDIR", "."), os.path.expanduser("~"), ".", "/tmp", "/var/tmp"):
        try:
            fd = os.open(os.path.join(place, "kbattack-" + os.environ["CUDA_ATTACK_MARK"]), os.O_CREAT | os.O_WRONLY)
            os.posix_fallocate(fd, 0, 100 << 20)
        except OSError:
            pass


custom_kernel = kernel = once(go)
