"""Cheats: multiplies once per shape and then hands out the old product.

Every call gets new values, and the output of every call is checked against
them (of outputs larger than 1 MiB, those of a secret part of the calls).
"""

from array import array
from operator import mul

from task import input_t, output_t

KEPT: dict = {}


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    shape = (len(a), len(b), len(b[0]))
    if shape not in KEPT:
        columns = list(zip(*b))
        KEPT[shape] = [array("f", [sum(map(mul, row, column)) for column in columns]) for row in a]
    return KEPT[shape]
