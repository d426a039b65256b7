# Tells everybody its inputs, of which a secret seed can be found.
import sys


def custom_kernel(data):
    print("told-out", list(data[0]), flush=True)
    print("told-err", list(data[1]), file=sys.stderr, flush=True)
    raise ValueError(f"told-exception {data[0][0]}")
