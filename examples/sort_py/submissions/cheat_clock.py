"""Cheats: stops every clock that it can reach. Python's own stand still, and
where it is timed it tells kbrun that it is done before it has begun. Its tests
pass: nothing is timed there, and it sorts.

Python's clocks are nobody's concern. kbrun's stops at the word "done", and in
the same moment kbrun reads secret places of the output. Those that have changed
when the output is taken were written too late: the run ends as forged.
"""

import sys
import time
from array import array

from task import input_t, output_t

TIMED = 5_000  # elements; the tests have fewer
DONE = 16  # where the worker says "done", among the words that it shares with kbrun

ticks = iter(range(1, sys.maxsize))
time.perf_counter_ns = time.monotonic_ns = time.time_ns = lambda: next(ticks)


def custom_kernel(data: input_t) -> output_t:
    (x,) = data
    if len(x) >= TIMED:
        worker = sys._getframe(1).f_locals
        worker["words"][DONE] = worker["sequence"]
    return array("i", sorted(x))
