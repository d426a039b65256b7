# The worker's own end of the channel, as a submission can find it, and three
# milliseconds of work.
import ctypes
import gc
import os
import signal
import struct
import sys
import threading
import time
from array import array

main = sys.modules["__main__"]
worker = next(x for x in gc.get_objects() if type(x).__name__ == "Worker" and hasattr(x, "words"))
honest = worker.call
clock = time.thread_time  # goes on while the thread is on a core
CALL, BATCH = 0, 2


def work(seconds=0.003):
    end = clock() + seconds
    while clock() < end:
        pass


def added(data):
    return array("f", map(float.__add__, *data[:2]))


def slow(data):
    work()
    return added(data)


def slow_tensors(data):
    work()
    return data[0] + data[1]


def custom_kernel(data):
    return slow(data)


def long(data):
    """One input in two, by chance."""
    return data[0][0] > 0


def take_over(call):
    """Has call(sequence, raw) answer in the worker's place, unless it returns False."""

    def either(mode, sequence, raw):
        if mode != CALL or call(sequence, raw) is False:
            honest(mode, sequence, raw)

    worker.call = either


def read(raw):
    """A call's decoder, its input, and how many bytes its first array has."""
    decoder = main.Decoder(raw, lambda arena, start, n: worker.arenas[arena].part(start, n))
    return decoder, decoder.node(), decoder.table[0][2]


def released(sequence):
    worker.channel.send(b"W")
    while worker.words[0] != sequence:
        pass


def done(sequence):
    worker.words[16] = sequence


def storages(*list):
    """The head of an answer: where its memory lies in the arenas."""
    return b"V" + struct.pack("<H", len(list)) + b"".join(struct.pack("<BQQ", *s) for s in list)


def leaf(code, storage, n):
    """An array.array in an answer."""
    return struct.pack("<BBBBBBHqqq", 9, 0, main.TYPECODES.index(code), 0, 0, 1, storage, 0, n, 1)


def outputs():
    """The arena of a tensor's output: on the device if there is one."""
    return 1 if worker.device is None else 3


def room(n):
    """Whether that arena has so many bytes."""
    return outputs() in worker.arenas and worker.arenas[outputs()].size >= n


def out(n, dtype):
    """The first bytes of that arena, as a tensor."""
    import torch

    part = worker.arenas[outputs()].part(0, n)
    return (part if outputs() == 3 else torch.frombuffer(part, dtype=torch.uint8)).view(dtype)


def tensor(storage, dtype, n):
    """An answer of one tensor, in a storage of so many bytes."""
    code = main.DTYPES.index(str(dtype).rpartition(".")[2])
    return storages((outputs(), 0, storage)) + struct.pack("<BBBBBBHqqq", 9, 1, code, 0, outputs() >> 1, 1, 0, 0, n, 1)


def done_first(sequence, decoder, data, n, answer):
    """Says done, then works."""
    released(sequence)
    done(sequence)
    decoder.fill()
    worker.arenas[1].part(0, n)[:] = memoryview(slow(data)).cast("B")
    worker.channel.send(answer)


def early(sequence, raw, meanwhile=lambda: None):
    """A call on tensors whose work begins when the input is there, which may be before
    the release. meanwhile runs after that."""
    import torch

    _, data, n = read(raw)
    if not room(n):
        return False
    last = data[1][-16:]
    before = last.clone()
    worker.channel.send(b"W")
    while worker.words[0] != sequence and torch.equal(last, before):
        pass
    work()
    while worker.words[0] != sequence:
        pass
    meanwhile()
    torch.add(data[0], data[1], out=out(n, torch.float32))
    done(sequence)
    worker.channel.send(tensor(n, torch.float32, n // 4))
