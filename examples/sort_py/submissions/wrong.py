"""Wrong: forgets the sign bit, so that negative numbers come last."""

from array import array

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    (x,) = data
    if isinstance(x, array):
        return array("i", sorted(x, key=lambda v: v & 0xFFFFFFFF))
    x = x.sort().values
    return x.roll(-int((x < 0).sum()))
