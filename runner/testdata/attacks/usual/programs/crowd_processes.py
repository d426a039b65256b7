# Keeps its core busy with processes of its own during long calls.
from channel import *

import mmap

LONG, SHORT = 0.006, 0.0002
shared = mmap.mmap(-1, 4096)
for _ in range(4):
    if os.fork() == 0:
        os.sched_setaffinity(0, {0})
        signal.alarm(60)
        while True:
            if not shared[0]:
                time.sleep(0.0005)


def custom_kernel(data):
    shared[0] = long(data)
    os.sched_setaffinity(0, {0} if long(data) else range(os.cpu_count()))
    work(LONG if long(data) else SHORT)
    return added(data)
