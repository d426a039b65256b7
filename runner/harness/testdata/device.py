

class Device:
    """Memory of the processor that stands in for a GPU's: every floating-point
    tensor is on it, every other is not."""

    def holds(self, tensor):
        return tensor.dtype.is_floating_point

    def number(self, tensor):
        return 0

    def allocate(self, size, descriptors):
        return self.mapped(size, descriptors)

    def share(self, tensor):
        return ["b00ff", "i7"]

    def open(self, shared, size, descriptors):
        if shared != ["b00ff", "i7"]:
            raise RuntimeError(f"got {shared}")
        return self.mapped(size, descriptors)

    def mapped(self, size, descriptors):
        import torch

        map = mmap.mmap(descriptors[0], size, mmap.MAP_SHARED)
        os.close(descriptors[0])
        return torch.frombuffer(map, dtype=torch.uint8)

    def synchronize(self):
        pass

    def flush(self):
        pass


