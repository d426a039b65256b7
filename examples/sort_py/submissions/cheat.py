"""Cheats: overwrites its input with zeros and returns it. Zeros are in order,
and a check that looks at the same memory would find nothing missing.

The judge checks against its own copy, in another process.
"""

from array import array

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    (x,) = data
    x[:] = array("i", bytes(4 * len(x)))
    return x
