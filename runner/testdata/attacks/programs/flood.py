# 300 MB of output.
from attack import *


def go():
    for fd in (1, 2):
        for _ in range(150):
            os.write(fd, b"0123456789abcde\n" * 65536)


custom_kernel = kernel = once(go)
