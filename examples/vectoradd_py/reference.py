"""Makes inputs for vectoradd and checks outputs. Runs in the judge only."""

from __future__ import annotations

import random
from array import array

TOLERANCE = 1e-6  # absolute; the summands lie in [-1, 1)


def generate_input(n: int, seed: int) -> tuple[array, array]:
    draw = random.Random(seed).random
    return tuple(array("f", [2 * draw() - 1 for _ in range(n)]) for _ in "ab")


def check_implementation(data: tuple[array, array], output: array) -> tuple[bool, str]:
    a, b = data
    if type(output) is not array or output.typecode != "f" or len(output) != len(a):
        return False, f"got {describe(output)}, want {len(a)} float32 in one dimension"
    for i, (x, y, got) in enumerate(zip(a, b, output)):
        if not abs(x + y - got) <= TOLERANCE:  # so written, NaN is wrong too
            return False, f"element {i} of {len(a)}: got {got:.9g}, want {x + y:.9g}"
    return True, ""


def describe(output: object) -> str:
    if type(output) is array:
        return f"{len(output)} elements of type {output.typecode!r}"
    return type(output).__name__
