"""Right, but slow: the sum of k outer products, one at a time."""

from array import array

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    c = [[0.0] * len(b[0]) for _ in a]
    for k in range(len(b)):
        for i in range(len(a)):
            for j in range(len(b[0])):
                c[i][j] = c[i][j] + a[i][k] * b[k][j]
    return [array("f", row) for row in c]
