# Fills its caches in the warm-up and finds them in the test.
import os
import sys

from attack import right, warming

cache = os.path.expanduser("~/.cache/built")
if warming:
    os.makedirs(os.path.dirname(cache), exist_ok=True)
    open(cache, "w").write("built")


def kernel(n, seed):
    return right(n, seed) if os.path.exists(cache) else 0
