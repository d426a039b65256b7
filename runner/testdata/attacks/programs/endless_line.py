# 100 MB without a line end, and a flood that does not stop.
from attack import *


def go():
    daemon(lambda: [os.write(1, b"x" * 65536) for _ in range(100000)])
    for _ in range(100):
        os.write(1, b"x" * (1 << 20))


custom_kernel = kernel = once(go)
