# Memory on a device that judge and worker share. All that is peculiar to CUDA and
# ROCm stands in class Device.


class Device:
    """The first GPU, as CUDA's and ROCm's torch have it. Nothing here touches it
    before an arena is made or opened: the workers' parent never does."""

    def __init__(self):
        self.kept, self.waste = [], None

    def holds(self, tensor):
        return tensor.device.type == "cuda"

    def number(self, tensor):
        """Which of several devices; only 0 can be shared."""
        return tensor.device.index or 0

    def allocate(self, size, descriptors):
        """Memory in a segment of its own: the whole segment is shared, and nothing
        of the judge's may lie beside."""
        torch = torch_module()
        torch.cuda.init()
        torch.cuda.empty_cache()
        tried = []  # holes in other segments, taken until one is made
        for _ in range(64):
            tensor = torch.zeros(size, dtype=torch.uint8, device="cuda:0")
            for segment in torch.cuda.memory_snapshot():
                if segment["address"] == tensor.data_ptr() and segment["total_size"] == size:
                    self.kept.append(tensor)  # never given back: who has it open could read what came there next
                    return tensor
            tried.append(tensor)
        raise RuntimeError(f"torch's allocator has no segment of its own for {size} bytes")

    def share(self, tensor):
        """What open needs, as texts."""
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()
        told = storage._share_cuda_()
        if told[3] != 0:
            raise RuntimeError(f"the memory lies {told[3]} bytes inside of a larger piece")
        return [f"b{value.hex()}" if isinstance(value, bytes) else f"i{int(value)}" for value in told]

    def open(self, shared, size, descriptors):
        """The same memory in another process."""
        import torch

        torch.cuda.init()
        told = [bytes.fromhex(text[1:]) if text[0] == "b" else int(text[1:]) for text in shared]
        told[-1] = bool(told[-1])  # whether an event must be waited for
        kind = torch.UntypedStorage if hasattr(torch, "UntypedStorage") else torch._UntypedStorage
        return torch.empty(0, dtype=torch.uint8, device="cuda:0").set_(kind._new_shared_cuda(*told))[:size]

    def synchronize(self):
        torch_module().cuda.synchronize()

    def flush(self):
        """Writes 256 MiB, so that no cache of the device holds the inputs."""
        if self.waste is None:
            self.waste = torch_module().empty(256 << 20, dtype=torch_module().uint8, device="cuda:0")
        self.waste.fill_(1)


class DeviceArena:
    """A piece of a device's memory that two processes share."""

    def __init__(self, tensor):
        self.tensor, self.size = tensor, tensor.numel()

    def part(self, start, nbytes):
        return self.tensor[start : start + nbytes]

    def address(self):
        return self.tensor.data_ptr()

    def bytes(self, start, nbytes):
        return bytes(self.part(start, nbytes).cpu().tolist())

    def write(self, start, raw):
        torch = torch_module()
        self.part(start, len(raw)).copy_(torch.frombuffer(bytearray(raw), dtype=torch.uint8))


def gather(tensor, index):
    """The bytes of a tensor at the places of an index on the same device."""
    return bytes(tensor.index_select(0, index).cpu().tolist())


def places(tensor, found):
    """The index of the bytes at each place, a start and a length."""
    torch = torch_module()
    return torch.tensor([start + i for start, size in found for i in range(size)], dtype=torch.int64, device=tensor.device)


