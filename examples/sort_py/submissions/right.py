"""Right: the sort that Python or torch brings."""

from array import array

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    (x,) = data
    if isinstance(x, array):
        return array("i", sorted(x))
    return x.sort().values
