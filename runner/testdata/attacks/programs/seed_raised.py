# An error that no harness expects; its last line is what a log would show.
from attack import *


def kernel(n, seed):
    raise KeyError(os.environ["POPCORN_SEED"])
