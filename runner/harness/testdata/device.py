

class Device:
    """Memory of the processor that stands in for a GPU's: every floating-point
    tensor is on it, every other is not."""

    def holds(self, tensor):
        return tensor.dtype.is_floating_point

    def number(self, tensor):
        return 0

    def allocate(self, size, descriptors):
        made = self.mapped(size, descriptors)
        self.inputs = getattr(self, "inputs", made)
        return made

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
        """Does the work that is queued, as a device does it for a process that is
        frozen. The last numbers of the inputs' memory say so: 12345, its time in
        microseconds, and where input and output lie."""
        import time

        import torch

        memory = self.inputs.view(torch.float32)
        if memory[-5] != 12345:
            return
        us, a, out, n = (int(x) for x in memory[-4:])
        end = time.thread_time() + us / 1e6
        while time.thread_time() < end:
            pass
        torch.add(memory[a : a + n], 1, out=memory[out : out + n])


