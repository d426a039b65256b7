"""Cheats: multiplies once per shape and then hands out the old product.

Every call gets new values, and every output is checked against them.
"""

from array import array
from operator import mul

from task import input_t, output_t

KEPT: dict = {}


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    shape = (len(a), len(b), len(b[0]))
    if shape not in KEPT:
        if isinstance(a, list):
            columns = list(zip(*b))
            KEPT[shape] = [array("f", [sum(map(mul, row, column)) for column in columns]) for row in a]
        else:
            KEPT[shape] = a @ b
    return KEPT[shape]
