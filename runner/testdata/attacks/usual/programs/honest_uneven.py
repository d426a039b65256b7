# Right, and takes long for one input in two.
from channel import *


def custom_kernel(data):
    work(0.006 if long(data) else 0.0002)
    return added(data)
