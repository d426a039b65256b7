from array import array

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    if isinstance(a, list):  # no GPU here
        columns = list(zip(*b))
        return [array("f", [sum(x * y for x, y in zip(row, column)) for column in columns]) for row in a]
    return a @ b  # torch tensors; replace by your kernel
