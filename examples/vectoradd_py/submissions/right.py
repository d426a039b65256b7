"""Right: one pass in C."""

from array import array
from operator import add

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    return array("f", map(add, a, b))
