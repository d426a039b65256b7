"""Wrong: an off-by-one; the last of the k products is left out."""

from array import array
from operator import mul

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    columns = list(zip(*b[:-1])) or [()] * len(b[0])
    return [array("f", [sum(map(mul, row, column)) for column in columns]) for row in a]
