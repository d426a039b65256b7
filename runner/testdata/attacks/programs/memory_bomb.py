# One gibibyte at most, in blocks that are touched.
from attack import *


def go():
    blocks = []
    for _ in range(16):
        blocks.append(bytearray(b"x") * (64 << 20))
    tell("took", len(blocks) * 64, "MiB")


custom_kernel = kernel = once(go)
