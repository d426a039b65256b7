from array import array

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    (x,) = data
    if isinstance(x, array):  # no GPU here
        return array("i", sorted(x))
    return x.sort().values  # a torch tensor; replace by your kernel
