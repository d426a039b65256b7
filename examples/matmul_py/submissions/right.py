"""Right: columns made once, inner products in C."""

from array import array
from operator import mul

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    columns = list(zip(*b))
    return [array("f", [sum(map(mul, row, column)) for column in columns]) for row in a]
