# The worker: imports the submission and calls its kernel on inputs that lie in
# shared memory. Nothing it says is believed; see tree.go and session.go.
#
# The process starts as the worker's parent: it imports the modules that it is
# told, computes nothing, and forks one worker for each phase. Only the fork
# sees any of the submission.

CALL, ECHO, BATCH, RANGE, TORCH, PYTHON = range(6)
ROWS = 20  # of a profile's table


class Worker:
    def __init__(self, channel, page):
        self.channel, self.words = channel, memoryview(page.map).cast("I")
        self.arenas, self.bases = {}, {}
        self.kernel = None
        self.placed, self.destinations = {}, {}
        self.device = None
        self.table = ""

    # Messages begin with one letter.
    def serve(self):
        while True:
            raw, descriptors = self.channel.receive()
            op, body = raw[:1], raw[1:]
            if op == b"A":
                index, size = struct.unpack("<BQ", body)
                self.arenas[index] = Arena(descriptors[0], size)
                self.arenas[index].touch()
                self.bases[index] = self.arenas[index].address()
                self.destinations = {}
                self.channel.send(b"A")
            elif op == b"D":
                self.on_device(self.open, body, descriptors)
            elif op == b"w":
                self.on_device(self.write, body, descriptors)
            elif op == b"r":
                self.on_device(self.read, body, descriptors)
            elif op == b"L":
                self.load(body)
            elif op == b"Q":
                self.channel.send(b"Q" + texts(*(self.table[i : i + 1000] for i in range(0, min(len(self.table), 100_000), 1000))))
            elif op == b"P":
                mode, sequence = struct.unpack_from("<BI", body)
                self.call(mode, sequence, body[5:])

    def on_device(self, work, body, descriptors):
        try:
            answer = work(body, descriptors)
        except Exception as error:
            answer = b"X" + report(error, os.getcwd())
        self.channel.send(answer)

    def open(self, body, descriptors):
        """Opens an arena on the device. Calls synchronize from here on."""
        index, size = struct.unpack_from("<BQ", body)
        decoder = Decoder(b"\0\0" + body[9:], None)
        shared = [decoder.bytes(decoder.take("<H")[0]).decode() for _ in range(decoder.take("<H")[0])]
        device = self.device or Device()
        arena = DeviceArena(device.open(shared, size, descriptors))
        device.synchronize()
        self.device, self.arenas[index], self.bases[index] = device, arena, arena.address()
        self.destinations, self.tensor = {}, self.tensor_anywhere
        return b"D"

    def write(self, body, descriptors):
        index, at = struct.unpack_from("<BQ", body)
        self.arenas[index].write(at, body[9:])
        self.device.synchronize()
        return b"w"

    def read(self, body, descriptors):
        return b"r" + self.arenas[body[0]].bytes(*struct.unpack_from("<QQ", body, 1))

    def load(self, body):
        import importlib

        try:
            module = importlib.import_module("submission")
            kernel = getattr(module, "custom_kernel", None)
            if not callable(kernel):
                raise AttributeError("submission.py defines no custom_kernel")
            self.kernel = kernel
        except Exception as error:
            sys.stdout.flush()
            sys.stderr.flush()
            self.channel.send(b"X" + report(error, os.getcwd()))
            return
        self.channel.send(b"L")

    def call(self, mode, sequence, raw):
        words, decoder = self.words, Decoder(raw, lambda arena, start, n: self.arenas[arena].part(start, n))
        data = decoder.node()
        kernel = {ECHO: echo, RANGE: self.named, TORCH: self.seen_by_torch, PYTHON: self.seen_by_python}.get(mode, self.kernel)
        plain, device = decoder.plain, self.device
        special = mode == BATCH or device is not None
        error = output = None
        self.placed, self.next, self.next_on_device = {}, 0, 0
        self.channel.send(b"W")
        while words[RELEASE] != sequence:
            pass
        try:
            if plain:
                decoder.fill()
            if special:
                output = []
                for item in data if mode == BATCH else (data,):
                    output.append(kernel(item))
                    self.place(output[-1], "", 0)
                if mode != BATCH:
                    output = output[0]
                if device is not None:
                    device.synchronize()
            else:
                output = kernel(data)
                self.place(output, "", 0)
        except Exception as caught:
            error = caught
        words[DONE] = sequence
        if error is None:
            try:
                answer = b"V" + Encoder(lambda value, path: self.placed[id(value)]).message(output)
            except Exception as caught:
                error = caught
        if error is not None:
            answer = self.failure(error)
        self.channel.send(answer)

    def named(self, data):
        """The kernel under the name that a profiler around this process looks for."""
        torch = torch_module()
        if torch is None or not torch.cuda.is_available():
            return self.kernel(data)
        with torch.cuda.nvtx.range("custom_kernel"):
            output = self.kernel(data)
            torch.cuda.synchronize()
        return output

    def seen_by_torch(self, data):
        torch = torch_module()
        if torch is None:
            return self.seen_by_python(data)
        with torch.profiler.profile() as seen:
            output = self.kernel(data)
        self.table = seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=ROWS)
        return output

    def seen_by_python(self, data):
        import cProfile
        import io
        import pstats

        seen, lines = cProfile.Profile(), io.StringIO()
        output = seen.runcall(self.kernel, data)
        pstats.Stats(seen, stream=lines).sort_stats("cumulative").print_stats(ROWS)
        self.table = lines.getvalue()
        return output

    def failure(self, error):
        if isinstance(error, TooLarge):
            return b"T" + struct.pack("<BQ", *error.args)
        if isinstance(error, Unsupported):
            return b"U" + texts(str(error))
        sys.stdout.flush()
        sys.stderr.flush()
        return b"X" + report(error, os.getcwd())

    def place(self, value, path, depth):
        """Copies every array of the output to where the judge reads it, unless
        it lies in an input already."""
        if is_tensor(value):
            self.tensor(value, path)
        elif type(value) is array.array:
            self.array(value)
        elif depth < MAX_DEPTH and isinstance(value, (tuple, list)):
            for i, item in enumerate(value):
                self.place(item, path, depth + 1)
        elif depth < MAX_DEPTH and type(value) is dict:
            for item in value.values():
                self.place(item, path, depth + 1)

    def tensor(self, value, path):
        if id(value) in self.placed:
            return
        size, item = value.numel(), value.element_size()
        shape = tuple(value.shape)
        base, arena = self.bases.get(0, 0), self.arenas.get(0)
        if size and arena is not None and value.device.type == "cpu" and value.layout == torch_module().strided:
            at = value.data_ptr() - base
            if 0 <= at < arena.size:
                reach = sum((n - 1) * stride for n, stride in zip(shape, value.stride())) + 1
                self.placed[id(value)] = (0, at, reach * item, 0, shape, value.stride())
                return
        start, nbytes = self.reserve(size * item)
        key = (start, shape, value.dtype)
        target = self.destinations.get(key)
        if target is None:
            torch = torch_module()
            if nbytes:
                target = torch.frombuffer(self.arenas[1].part(start, nbytes), dtype=torch.uint8).view(value.dtype).reshape(shape)
            else:
                target = torch.empty(shape, dtype=value.dtype)
            self.destinations[key] = target
        target.copy_(value.detach())
        self.placed[id(value)] = (1, start, nbytes, 0, shape, target.stride())

    def array(self, value):
        if id(value) in self.placed:
            return
        start, nbytes = self.reserve(len(value) * value.itemsize)
        if nbytes:
            self.arenas[1].part(start, nbytes)[:] = memoryview(value).cast("B")
        self.placed[id(value)] = (1, start, nbytes, 0, (len(value),), (1,))

    def reserve(self, nbytes):
        start, self.next = self.next, aligned(self.next + nbytes)
        if 1 not in self.arenas or self.next > self.arenas[1].size:
            raise TooLarge(1, max(self.next, ALIGN))
        return start, nbytes

    def tensor_anywhere(self, value, path):
        """What tensor does, where there are arenas on a device, too."""
        if id(value) in self.placed:
            return
        if not self.device.holds(value):
            return Worker.tensor(self, value, path)
        size, item, shape = value.numel(), value.element_size(), tuple(value.shape)
        if size and value.layout == torch_module().strided:
            at = value.data_ptr() - self.bases[DEVICE]
            if 0 <= at < self.arenas[DEVICE].size:
                reach = sum((n - 1) * stride for n, stride in zip(shape, value.stride())) + 1
                self.placed[id(value)] = (DEVICE, at, reach * item, 0, shape, value.stride())
                return
        start, nbytes = self.next_on_device, size * item
        self.next_on_device = aligned(start + nbytes)
        if self.next_on_device > self.arenas[DEVICE + 1].size:
            raise TooLarge(DEVICE + 1, self.next_on_device)
        key = (DEVICE, start, shape, value.dtype)
        target = self.destinations.get(key)
        if target is None:
            target = self.arenas[DEVICE + 1].part(start, nbytes).view(value.dtype).reshape(shape)
            self.destinations[key] = target
        target.copy_(value.detach())
        self.placed[id(value)] = (DEVICE + 1, start, nbytes, 0, shape, target.stride())


def echo(data):
    return ()


def reseed():
    """Random numbers of its own: a fork has its parent's generators."""
    import random

    random.seed()
    numpy, torch = sys.modules.get("numpy"), torch_module()
    if numpy is not None:
        numpy.random.seed(int.from_bytes(os.urandom(4), "little"))
    if torch is not None:
        torch.seed()


def work(order, descriptors):
    """The fork's whole life."""
    try:
        os.setsid()
    except OSError:
        pass  # it leads its session already
    prctl(4, 1)  # PR_SET_DUMPABLE: programs read their own /proc
    prctl(1, 9)  # PR_SET_PDEATHSIG
    channel, page, out, err = descriptors
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    for name in os.listdir("/proc/self/fd") if not order["profiled"] else ():  # a profiler's are in use
        if int(name) > 2 and int(name) not in (channel, page):
            try:
                os.close(int(name))
            except OSError:
                pass
    os.environ.pop("OPENBLAS_NUM_THREADS", None)
    os.environ.update(order["environ"])
    os.chdir(order["work"])
    sys.path.insert(0, order["work"])
    sys.argv = [os.path.join(order["work"], "submission.py")]
    sys.dont_write_bytecode = True
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # what was printed stays when the process is killed
    reseed()
    page = Arena(page, mmap.PAGESIZE)
    channel = Channel(channel)
    channel.send(b"H")
    gc.enable()
    worker = Worker(channel, page)
    try:
        worker.serve()
    except EOFError:
        pass
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def clean(directories, keep):
    """Empties directories of what a worker left, but for the one on the way to
    keep, which is not the worker's; returns what stays."""
    left = []
    for directory in directories:
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            if not keep.startswith(path + "/"):
                remove(path)
                left += [path] if os.path.lexists(path) else []
    for kind in ("shm", "sem", "msg"):
        try:
            with open(f"/proc/sysvipc/{kind}", encoding="ascii") as lines:
                left += list(lines)[1:]
        except OSError:
            pass
    return left


def remove(path):
    """Removes a tree as far as it can."""
    if os.path.islink(path) or not os.path.isdir(path):
        try:
            os.unlink(path)
        except OSError:
            pass
        return
    try:
        os.chmod(path, 0o700)
    except OSError:
        pass
    for root, names, files in os.walk(path, topdown=True):
        for name in names:
            if not os.path.islink(os.path.join(root, name)):
                try:
                    os.chmod(os.path.join(root, name), 0o700)
                except OSError:
                    pass
    for root, names, files in os.walk(path, topdown=False):
        for name in files + names:
            inner = os.path.join(root, name)
            try:
                (os.rmdir if os.path.isdir(inner) and not os.path.islink(inner) else os.unlink)(inner)
            except OSError:
                pass
    try:
        os.rmdir(path)
    except OSError:
        pass


def parent():
    import json

    channel = Channel(3)
    order = json.loads(channel.receive()[0])
    found = import_all(order["modules"])
    gc.collect()
    gc.freeze()
    prctl(4, int(order["profiled"]))  # a profiler may look in
    threads = len(os.listdir("/proc/self/task"))
    channel.send(b"R" + texts(str(threads), *found))
    while True:
        try:
            raw, descriptors = channel.receive()
        except EOFError:
            return
        order = json.loads(raw)
        if order["op"] == "fork":
            child = os.fork()
            if child == 0:
                try:
                    channel.socket.close()
                    work(order, descriptors)
                except BaseException:
                    import traceback

                    traceback.print_exc()
                os._exit(70)
            for descriptor in descriptors:
                os.close(descriptor)
            _, status, used = os.wait4(child, 0)
            told = (os.waitstatus_to_exitcode(status), int(used.ru_utime * 1e9), int(used.ru_stime * 1e9), used.ru_maxrss << 10)
            channel.send(b"E" + texts(*told))
        elif order["op"] == "become":  # where it cannot be forked
            channel.socket.close()
            work(order, descriptors)
        elif order["op"] == "clean":
            channel.send(b"C" + texts(str(len(clean(order["directories"], order["keep"])))))


parent()
