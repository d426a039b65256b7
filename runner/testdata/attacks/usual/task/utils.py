# What tasks share, in the form that published ones have.
import functools
import random


def set_seed(seed=42):
    random.seed(seed)


def verbose_allclose(received, expected, rtol=1e-5, atol=1e-6, max_print=5):
    if len(received) != len(expected):
        return False, f"SIZE MISMATCH: {len(received)} {len(expected)}"
    wrong = [i for i, (x, y) in enumerate(zip(received, expected)) if not abs(x - y) <= atol + rtol * abs(y)]
    if wrong:
        return False, "; ".join(f"ERROR AT {i}: {received[i]} {expected[i]}" for i in wrong[:max_print])
    return True, ""


def match_reference(data, output, reference, rtol=1e-5, atol=1e-6):
    good, text = verbose_allclose(output, reference(data), rtol, atol)
    return good, text


def make_match_reference(reference, **kwargs):
    return functools.partial(match_reference, reference=reference, **kwargs)
