"""Wrong: an off-by-one; the last element is never written."""

from array import array

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    c = array("f", bytes(4 * len(a)))
    for i in range(len(a) - 1):
        c[i] = a[i] + b[i]
    return c
