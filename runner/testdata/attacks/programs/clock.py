# Clocks that run slowly, in the worker and on the machine.
from attack import *

real, core = time.perf_counter_ns, time.thread_time_ns
begin = real()
for name in ("perf_counter_ns", "monotonic_ns", "time_ns"):
    setattr(time, name, lambda: begin + (real() - begin) // 1000)
try:
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME))
    tell("the machine's clock obeyed")
except OSError:
    pass


def custom_kernel(data):
    from array import array

    a, b = data
    out = array("f", [x + y for x, y in zip(a, b)])
    end = core() + 3_000_000
    while core() < end:
        pass
    return out
