# Leave 64 MiB and a message where the next job may find them.
from attack import *


def go():
    with open("/dev/shm/kbattack-" + os.environ["CUDA_ATTACK_MARK"], "wb") as file:
        file.write(b"x" * (64 << 20))


custom_kernel = kernel = once(go)
