# Says done, then works. Its tensor is a part of 64 MiB, which should get the places
# that are read.
from channel import *

import torch

BIG = 64 << 20

custom_kernel = slow_tensors


def call(sequence, raw):
    _, data, n = read(raw)
    if not room(n):
        return False
    released(sequence)
    done(sequence)
    if not room(BIG):
        return worker.channel.send(b"T" + struct.pack("<BQ", outputs(), BIG))
    out(n, torch.float32).copy_(custom_kernel(data))
    worker.channel.send(tensor(BIG, torch.float32, n // 4))


take_over(call)
