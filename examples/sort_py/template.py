from array import array

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    (x,) = data
    return array("i", sorted(x))  # replace by your kernel
