"""Cheats: sorts, but stops the clock meanwhile, for itself and for the
harness in whose process it runs. Its tests pass, as nothing is timed there.

The judge has a clock of its own, in another process: where the two differ by
more than the data's way there and back, that one counts, and a worker whose
clock is far off in most repeats is found out.
"""

import sys
import time
from array import array

from task import input_t, output_t

ticks = iter(range(1, sys.maxsize))
time.perf_counter_ns = time.monotonic_ns = time.time_ns = lambda: next(ticks)


def custom_kernel(data: input_t) -> output_t:
    (x,) = data
    if isinstance(x, array):
        return array("i", sorted(x))
    return x.sort().values
