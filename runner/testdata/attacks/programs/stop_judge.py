# The judge is stopped, and so is a child that would have to be waited for.
from attack import *


def go():
    daemon(lambda: os.kill(os.getpid(), signal.SIGSTOP))
    strike(signal.SIGSTOP)
    pause(10)


custom_kernel = kernel = once(go)
