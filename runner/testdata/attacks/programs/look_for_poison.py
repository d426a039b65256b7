# The next job: right, unless it finds what the one before it left.
from attack import *


def kernel(n, seed):
    work = os.path.dirname(os.path.abspath(os.environ.get("TMPDIR", ".")))
    for place in ("/tmp", "/var/tmp", "/dev/shm", "/usr/local/lib", "/etc", "/run", "/var/cache", os.path.dirname(work),
                  os.path.expanduser("~/.triton/cache"), os.path.join(os.environ.get("TMPDIR", "."), ".triton/cache")):
        try:
            for name in os.listdir(place):
                if "kbattack-" + os.environ["CUDA_ATTACK_MARK"] == name:
                    tell("poisoned:", place)
                    return 0
        except OSError:
            pass
    return right(n, seed)
