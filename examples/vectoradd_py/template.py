from array import array

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    if isinstance(a, array):  # no GPU here
        return array("f", [x + y for x, y in zip(a, b)])
    return a + b  # torch tensors; replace by your kernel
