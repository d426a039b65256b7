"""Wrong: forgets the sign bit, so that negative numbers come last."""

from array import array

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    (x,) = data
    return array("i", sorted(x, key=lambda v: v & 0xFFFFFFFF))
