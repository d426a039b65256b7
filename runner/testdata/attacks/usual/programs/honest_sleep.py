# Right, and takes three milliseconds of time that is its own.
import time
from array import array


def custom_kernel(data):
    a, b = data
    end = time.perf_counter() + 0.003
    out = array("f", [x + y for x, y in zip(a, b)])
    while time.perf_counter() < end:
        pass
    return out
