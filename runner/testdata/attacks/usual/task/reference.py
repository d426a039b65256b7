import random
from array import array

from utils import make_match_reference


def generate_input(n, seed):
    draw = random.Random(seed).random
    return tuple(array("f", [2 * draw() - 1 for _ in range(n)]) for _ in "ab")


def ref_kernel(data):
    a, b = data
    return array("f", [x + y for x, y in zip(a, b)])


check_implementation = make_match_reference(ref_kernel)
