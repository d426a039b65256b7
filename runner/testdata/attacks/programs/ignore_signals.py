# Ignores what can be ignored; the job is canceled meanwhile.
from attack import *


def go():
    for sig in range(1, 65):
        try:
            signal.signal(sig, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    daemon(lambda: pause(LIFE))
    tell("ready")
    pause(LIFE)


custom_kernel = kernel = once(go)
