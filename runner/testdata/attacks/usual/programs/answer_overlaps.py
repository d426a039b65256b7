# Says done, sends the answer and works then. Its storages overlap: their copies
# give it the time.
from channel import *

BIG = 64 << 20


def call(sequence, raw):
    if 1 not in worker.arenas:
        return False
    if worker.arenas[1].size < BIG:
        released(sequence)
        done(sequence)
        return worker.channel.send(b"T" + struct.pack("<BQ", 1, BIG))
    decoder, data, n = read(raw)
    released(sequence)
    done(sequence)
    worker.channel.send(storages((1, 0, BIG), (1, 0, BIG - 4096), (1, 0, n)) + leaf("f", 2, n // 4))
    decoder.fill()
    worker.arenas[1].part(0, n)[:] = memoryview(slow(data)).cast("B")


take_over(call)
