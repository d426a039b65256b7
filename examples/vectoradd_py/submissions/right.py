"""Right: one pass in C, or one torch operation."""

from array import array
from operator import add

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    if isinstance(a, array):
        return array("f", map(add, a, b))
    return a + b
