
import statistics
import threading
import time

import torch

device = "cpu"


def wait():
    pass


def spin(us):
    end = time.thread_time() + us / 1e6
    while time.thread_time() < end:
        pass


def events(work, repeats):
    found = []
    for _ in range(repeats):
        begun = time.thread_time()
        work()
        found.append((time.thread_time() - begun) * 1e9)
    return statistics.median(found)


def whole(tensor):
    storage = tensor.storage()
    return torch.empty(0, dtype=torch.uint8).set_(storage.untyped())


def exhaust(data):
    return torch.empty(1 << 50, dtype=torch.uint8)


class Aside:
    """Late work is a thread's. Queued work is noted in the last bytes of the inputs'
    memory, and the stand-in device does it after each fill."""

    def __init__(self):
        self.lock, self.out = threading.Lock(), None

    def late(self, data):
        with self.lock:
            torch.add(data["a"], 1, out=data["out"])
            self.out, self.right = data["out"], data["out"].clone()
        if threading.active_count() == 1:
            threading.Thread(target=self.flip, daemon=True).start()

    def flip(self):
        while True:
            with self.lock:
                self.out.copy_(self.right + torch.rand(len(self.right)) * 5e-4)

    def ahead(self, data, us):
        self.data, self.us = data, us
        note = [12345, us, data["a"].storage_offset(), data["out"].storage_offset(), data["a"].numel()]
        torch.empty(0).set_(data["a"].storage())[-5:] = torch.tensor(note)

    def first(self):
        spin(self.us)
        torch.add(self.data["a"], 1, out=self.data["out"])
