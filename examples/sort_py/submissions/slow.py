"""Right, but slow: a radix sort that looks at one bit in each of 32 passes."""

from array import array

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    (x,) = data
    for bit in range(32):
        first = 0 if bit < 31 else 1  # the sign bit, set, comes first
        low = array("i", [v for v in x if (v >> bit) & 1 == first])
        x = low + array("i", [v for v in x if (v >> bit) & 1 != first])
    return x
