import sys


def custom_kernel(n):
    for _ in range(2000):
        sys.stdout.write("x" * 1000 + "\n")
    return n
