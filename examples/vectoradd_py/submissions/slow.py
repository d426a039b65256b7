"""Right, but slow: adds in many small slices and joins what it has each time."""

from array import array

from task import input_t, output_t

STEP = 16


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    c = array("f")
    for i in range(0, len(a), STEP):
        c = c + array("f", [x + y for x, y in zip(a[i : i + STEP], b[i : i + STEP])])
    return c
