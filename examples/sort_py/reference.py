"""Makes inputs for sort and checks outputs. Runs in the judge only."""

from __future__ import annotations

import random
from array import array


def generate_input(n: int, bits: int, seed: int) -> tuple[array]:
    """n numbers in [-2**bits, 2**bits)."""
    draw = random.Random(seed).getrandbits
    return (array("i", [draw(bits + 1) - (1 << bits) for _ in range(n)]),)


def check_implementation(data: tuple[array], output: array) -> tuple[bool, str]:
    want = array("i", sorted(data[0]))
    if type(output) is not array or output.typecode != "i" or len(output) != len(want):
        return False, f"want {len(want)} int32 in one dimension"
    if output == want:
        return True, ""
    i = next(i for i, (x, y) in enumerate(zip(output, want)) if x != y)
    return False, f"element {i} of {len(want)}: got {output[i]}, want {want[i]}"
