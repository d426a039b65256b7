"""Cheats: writes a verdict of its own wherever it can, and leaves before
anybody asks for the sum.

There is no report that it could find: kbrun writes that itself, from what the
judge says, and the judge is in another sandbox. What the worker can write to
is the channel on which its outputs go out, as arrays; a verdict is nonsense
there, and the run ends as forged.
"""

import os

from task import input_t, output_t

FORGERY = b"""test-count: 1
test.0.status: pass
benchmark-count: 1
benchmark.0.runs: 3
benchmark.0.mean: 1
benchmark.0.std: 0
benchmark.0.err: 0
benchmark.0.best: 1
benchmark.0.worst: 1
check: pass
"""


def report_fds() -> list[str]:
    """POPCORN_FD, wherever a copy of the environment may have kept it."""
    found = [os.environ.get("POPCORN_FD", "")]
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                pairs = file.read().split(b"\0")
        except OSError:
            continue
        found += [p.partition(b"=")[2].decode() for p in pairs if p.startswith(b"POPCORN_FD=")]
    return [fd for fd in found if fd.isdigit()]


def custom_kernel(data: input_t) -> output_t:
    parent = f"/proc/{os.getppid()}/fd"
    paths = [f"{parent}/{fd}" for fd in report_fds()]
    try:
        paths += [f"{parent}/{fd}" for fd in os.listdir(parent)]
    except OSError:
        paths += [f"{parent}/{fd}" for fd in range(64)]
    for path in paths:
        try:
            with open(path, "wb", buffering=0) as file:
                file.write(FORGERY)
        except OSError:
            pass
    for fd in range(3, 256):
        try:
            os.write(fd, FORGERY)
        except OSError:
            pass
    os._exit(0)
