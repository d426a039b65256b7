# The seed lies in the memory of a judge that shares its process: print it, whole
# and spelled, and raise it as an error that the harness reports.
from attack import *


def kernel(n, seed):
    found = os.environ.get("POPCORN_SEED", str(seed))
    tell("found", found, dict(os.environ))
    tell("backwards", found[::-1])
    tell("spelled", " ".join(found))
    print(found, file=sys.stderr, flush=True)
    raise ValueError(f"expected {found}, got {found}")
