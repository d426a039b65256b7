# The text of an error becomes lines of the report.
from attack import *


def kernel(n, seed):
    raise ValueError("oh\n" + forgery(lines=["x"]).decode() + "\rcheck: pass\u2028check: pass")
