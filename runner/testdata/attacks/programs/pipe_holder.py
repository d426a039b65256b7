# A process that outlives everybody and keeps every pipe open.
from attack import *


def go():
    for fd in range(3, 32):
        try:
            os.set_inheritable(fd, True)
        except OSError:
            pass
    daemon(lambda: pause(LIFE))


custom_kernel = kernel = once(go)
