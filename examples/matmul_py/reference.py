"""Makes inputs for matmul and checks outputs. Runs in the judge only."""

from __future__ import annotations

import random
from array import array
from math import sqrt
from operator import mul

Matrix = list[array]

ROUNDS = 8  # each halves the chance that errors cancel out
# Times the root of the number of products summed, as rounding errors go either
# way; the factors lie in [-1, 1). Float32 needs less in any order of summation,
# up to k = 4096 at least; factors cut to 12 bits need several times as much.
TOLERANCE = 3e-5


def generate_input(m: int, k: int, n: int, seed: int) -> tuple[Matrix, Matrix]:
    draw = random.Random(seed).random

    def matrix(rows: int, columns: int) -> Matrix:
        return [array("f", [2 * draw() - 1 for _ in range(columns)]) for _ in range(rows)]

    return matrix(m, k), matrix(k, n)


def check_implementation(data: tuple[Matrix, Matrix], output: Matrix) -> tuple[bool, str]:
    """Freivalds' check: for random x of +1 and -1, c x must be a (b x). Nobody
    knows x in advance, and no product of matrices is needed. One wrong element
    cannot hide; several in a row hide with chance 2 ** -ROUNDS at most."""
    a, b = data
    m, k, n = len(a), len(b), len(b[0])
    if type(output) is not list or len(output) != m:
        return False, f"want {m} rows of {n} float32"
    for i, row in enumerate(output):
        if type(row) is not array or row.typecode != "f" or len(row) != n:
            return False, f"row {i}: want {n} float32"
    draw = random.SystemRandom()
    for _ in range(ROUNDS):
        x = [draw.choice((-1.0, 1.0)) for _ in range(n)]
        bx = times(b, x)
        for i, (got, want) in enumerate(zip(times(output, x), times(a, bx))):
            if not abs(got - want) <= TOLERANCE * sqrt(k * n):  # so written, NaN is wrong too
                return False, explain(a[i], b, output[i], i)
    return True, ""


def explain(a_row: array, b: Matrix, got: array, i: int) -> str:
    """Name the worst element of a row that is wrong."""
    want = [sum(map(mul, a_row, column)) for column in zip(*b)]
    j = max(range(len(want)), key=lambda j: abs(got[j] - want[j]) if got[j] == got[j] else float("inf"))
    return f"element ({i}, {j}): got {got[j]:.9g}, want {want[j]:.9g}"


def times(matrix: Matrix, x: list[float]) -> list[float]:
    return [sum(map(mul, row, x)) for row in matrix]
