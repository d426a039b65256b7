# Sleeps past the limit while its children burn time.
from attack import *


def burn():
    while True:
        pass


def go():
    daemon(burn)
    pause(LIFE)


custom_kernel = kernel = once(go)
