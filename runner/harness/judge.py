# The judge: holds the task's reference, makes inputs and checks outputs. It
# never sees the submission, only data that session.go has looked through, and
# every byte of it is copied before it is looked at.


class Master:
    """One input as the reference made it, and where its storages lie in the
    arenas, of which it needs sizes."""

    def __init__(self, value, device, inputs):
        self.value, self.device, self.sizes, self.places, self.copies = value, device, {0: 0, DEVICE: 0}, {}, []
        self.inputs = inputs  # where the copies are to be: cold, warm, or "" for the usual place

    def place(self, leaf, path):
        if type(leaf) is array.array:
            start = self.reserve(0, id(leaf), len(leaf) * leaf.itemsize)
            nbytes = len(leaf) * leaf.itemsize
            self.copies.append((0, start, nbytes, leaf))
            return 0, start, nbytes, 0, (len(leaf),), (1,)
        arena = DEVICE if self.device.holds(leaf) else 0
        if not arena and leaf.device.type != "cpu" or leaf.layout != torch_module().strided:
            raise Unsupported(f"{path or 'value'}: a tensor on {leaf.device.type}, {leaf.layout}")
        if arena and self.device.number(leaf):
            raise Unsupported(f"{path or 'value'}: a tensor on device {self.device.number(leaf)}, and only device 0 is shared")
        raw = storage_bytes(leaf)
        nbytes = raw.numel()
        key = (arena, raw.data_ptr() or id(leaf))
        known = key in self.places
        # One byte at least on a device, so that its size says that it is needed.
        start = self.reserve(arena, key, max(nbytes, arena and 1))
        if not known:
            self.copies.append((arena, start, nbytes, raw))
        return arena, start, nbytes, leaf.storage_offset(), tuple(leaf.shape), leaf.stride()

    def reserve(self, arena, key, nbytes):
        if key not in self.places:
            self.places[key], self.sizes[arena] = self.sizes[arena], aligned(self.sizes[arena] + nbytes)
        return self.places[key]

    def fill(self, arenas):
        for arena, start, nbytes, source in self.copies:
            if not nbytes:
                continue
            part = arenas[arena].part(start, nbytes)
            if type(source) is array.array:
                part[:] = memoryview(source).cast("B")
            elif arena >= DEVICE:
                part.copy_(source)
            else:
                torch_module().frombuffer(part, dtype=source.dtype).copy_(source)
        if self.inputs == "cold" or not self.inputs and self.sizes[DEVICE]:
            (self.device.flush if self.sizes[DEVICE] else flush)()
        if self.sizes[DEVICE]:
            self.device.synchronize()


waste = []


def flush():
    """Reads and writes 256 MiB, so that no cache of this core holds the inputs."""
    if not waste:
        waste[:] = bytearray(128 << 20), bytearray(b"\1") * (128 << 20)
    waste[0][:] = waste[1]


def storage_bytes(tensor):
    """The whole storage of a tensor, as bytes."""
    torch = torch_module()
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)


READY, RELEASED = 0, 16  # words of the page shared with kbrun; the time of the release follows RELEASED
OF_THE_TASK = ("load", "make", "check", "selftest")  # orders that run its files; native.go has the same


class Judge:
    def __init__(self, channel):
        self.channel, self.arenas, self.masters = channel, {}, {}
        self.reference, self.directory = None, ""
        self.device, self.words, self.shared = Device(), None, None

    def serve(self):
        import json

        while True:
            try:
                raw, descriptors = self.channel.receive()
            except EOFError:
                return
            head, _, body = raw.partition(b"\n")
            order = json.loads(head)
            try:
                answer = getattr(self, "do_" + order["op"])(order, body, descriptors)
            except Unsupported as error:
                answer = b"U" + texts(str(error))
            except (Exception, SystemExit) as error:
                if order["op"] in OF_THE_TASK:
                    answer = b"X" + report(error, self.directory)
                else:
                    answer = b"!" + texts(f"{type(error).__name__}: {error}")
            sys.stdout.flush()
            sys.stderr.flush()
            self.channel.send(answer)

    def do_import(self, order, body, descriptors):
        found = import_all(order["modules"])
        if torch_module() is not None:
            empty_is_zero()
        return b"R" + texts(*found)

    def do_load(self, order, body, descriptors):
        self.directory = order["directory"]
        os.chdir(self.directory)
        sys.path.append(self.directory)  # last: nothing of the task stands in for a module of Python's
        for name in ("task", "utils", "reference"):
            path = os.path.join(self.directory, name + ".py")
            if os.path.exists(path):
                module = load_file(name, path)
        self.reference = module
        if torch_module() is not None:
            empty_is_zero()
        if order["seed"] is not None and hasattr(sys.modules.get("utils"), "set_seed"):
            sys.modules["utils"].set_seed(order["seed"])
        missing = [name for name in ("generate_input", "check_implementation") if not callable(getattr(module, name, None))]
        if missing:
            raise AttributeError(f"reference.py defines no {missing[0]}")
        return b"L" + texts(str(getattr(module, "CALL_LIMIT_S", "")))

    def do_make(self, order, body, descriptors):
        made = [self.reference.generate_input(**arguments(args)) for args in order["batch"]]
        master = Master(made if len(made) > 1 else made[0], self.device, order["inputs"])
        raw = Encoder(master.place).message(master.value)
        self.masters[order["id"]] = master
        return b"M" + struct.pack("<QQ", master.sizes[0], master.sizes[DEVICE]) + raw

    def do_arena(self, order, body, descriptors):
        self.arenas[order["index"]] = Arena(descriptors[0], order["size"])
        self.arenas[order["index"]].touch()
        return b"A"

    def do_fill(self, order, body, descriptors):
        return b"F" + struct.pack("<Q", self.fill(order["id"], None))

    def fill(self, id, sequence):
        """Copies an input into the arenas, and with a sequence number releases the
        worker at once. Returns how long that took, in nanoseconds: work that the
        device does for others meanwhile makes it longer."""
        import time

        begun = time.perf_counter_ns()
        self.masters[id].fill(self.arenas)
        if sequence is not None:
            # kbrun's clock starts now
            self.shared[RELEASED + 1], self.shared[RELEASED + 2] = divmod(time.monotonic_ns(), 1 << 32)
            self.shared[RELEASED] = self.words[RELEASE] = sequence
        return time.perf_counter_ns() - begun

    def do_drop(self, order, body, descriptors):
        self.masters.pop(order["id"], None)
        return b"D"

    def do_check(self, order, body, descriptors):
        """Copies the output, compares the places that were read when it was
        called done, and has the reference check the copy."""
        master = self.masters.pop(order["id"])
        copies = {}
        for arena, start, nbytes in order["storages"]:
            part = self.arenas[arena].part(start, nbytes)
            copies[arena, start, nbytes] = part.clone() if arena >= DEVICE else bytearray(part)
        if any(key[0] >= DEVICE for key in copies):
            self.device.synchronize()
        late = sum(now != seen for now, seen in self.compared(copies, order["places"]))
        if late:
            return b"C" + texts("1", str(late), "", "")
        try:
            output = Decoder(body, lambda *key: copies[key] if key[0] >= DEVICE else memoryview(copies[key]))
            value = output.node()
            output.fill()
            if not order["check"]:
                return b"C" + texts("1", "0", "", "")
            if order["item"] is None:
                found = self.reference.check_implementation(master.value, value)
            else:
                found = self.reference.check_implementation(master.value[order["item"]], value[order["item"]])
            if isinstance(found, (tuple, str, list)):
                good, text = told(found)
        except Exception as error:
            return b"C" + texts("0", "0", f"{type(error).__name__}: {error}", "raised")
        if not isinstance(found, (tuple, str, list)):
            good, text = told(found)  # raises, which is the task's fault
        return b"C" + texts(str(int(good)), "0", text, "")

    def compared(self, copies, probed):
        """Pairs of what the copies have at the places, and what was seen there."""
        on_device = {}
        for arena, at, seen in probed:
            seen = bytes.fromhex(seen)
            for key, copy in copies.items():
                a, start, nbytes = key
                if a == arena and start <= at and at + len(seen) <= start + nbytes:
                    if arena >= DEVICE:
                        on_device.setdefault(key, []).append((at - start, seen))
                    else:
                        yield copy[at - start : at - start + len(seen)], seen
        for key, found in on_device.items():  # one transfer for all
            raw, begun = gather(copies[key], places(copies[key], [(at, len(seen)) for at, seen in found])), 0
            for _, seen in found:
                yield raw[begun : begun + len(seen)], seen
                begun += len(seen)

    def do_page(self, order, body, descriptors):
        """The page with the worker's flags, and one that the worker does not have."""
        self.words, self.shared = (memoryview(mmap.mmap(fd, mmap.PAGESIZE, mmap.MAP_SHARED)).cast("I") for fd in descriptors)
        for fd in descriptors:
            os.close(fd)
        return b"P"

    def do_device(self, order, body, descriptors):
        """Makes an arena on the device; says what another process opens it with."""
        try:
            tensor = self.device.allocate(order["size"], descriptors)
            shared = self.device.share(tensor)
        except Exception as error:
            raise Unsupported(f"{type(error).__name__}: {error}")
        self.arenas[order["index"]] = DeviceArena(tensor)
        return b"A" + texts(*shared)

    def do_wipe(self, order, body, descriptors):
        for index, arena in self.arenas.items():
            if index >= DEVICE:
                arena.tensor.zero_()
        self.device.synchronize()
        return b"W"

    def do_write(self, order, body, descriptors):
        self.arenas[order["index"]].write(order["at"], bytes.fromhex(order["bytes"]))
        self.device.synchronize()
        return b"W"

    def do_read(self, order, body, descriptors):
        return b"R" + self.arenas[order["index"]].bytes(order["at"], order["count"])

    def do_watch(self, order, body, descriptors):
        """Waits for the worker's flag and reads places of the device's arenas at
        once, as kbrun does it for the others. Says so before it waits; stops waiting
        when it is told anything. With an input it fills the arenas and releases
        the worker before that, when kbrun is ready."""
        import select
        import time

        grouped, look = {}, []
        for arena, at, size in order["places"]:
            grouped.setdefault(arena, []).append((at, size))
        for arena, found in grouped.items():
            tensor = self.arenas[arena].tensor
            index = places(tensor, found)
            look.append((tensor, index))
            gather(tensor, index)  # so that the device has the program for it
        self.device.synchronize()
        words, sequence, expect = self.words, order["sequence"], order["expect"]
        own_core = len(os.sched_getaffinity(0)) > 2
        self.channel.send(b"B")
        filled = 0
        if order["fill"] is not None:
            while self.shared[READY] != sequence:
                if select.select([self.channel.socket], [], [], 0)[0]:
                    return b"N"
            filled = self.fill(order["fill"], sequence)
        begun = time.monotonic()
        if expect > 0.001 and select.select([self.channel.socket], [], [], expect * 0.8)[0]:
            return b"N"
        spin = min(max(0.002, 2 * expect), 1)
        while words[DONE] != sequence:
            if own_core and time.monotonic() - begun < spin:
                continue
            time.sleep(0.00005)
            if words[DONE] != sequence and select.select([self.channel.socket], [], [], 0)[0]:
                return b"N"
        found = [tensor.index_select(0, index) for tensor, index in look]  # all begun, then read
        return b"G" + struct.pack("<Q", filled) + b"".join(bytes(got.cpu().tolist()) for got in found)

    def do_stop(self, order, body, descriptors):
        return b"S"

    def do_selftest(self, order, body, descriptors):
        """Whether the check takes the task's own answer; without one, it is trusted."""
        kernel = getattr(self.reference, "ref_kernel", None) or getattr(self.reference, "custom_kernel", None)
        if kernel is None:
            return b"S" + texts("1", "")
        import copy

        args = arguments(order["batch"][0])
        data = self.reference.generate_input(**args)
        good, text = told(self.reference.check_implementation(data, kernel(copy.deepcopy(data))))
        return b"S" + texts(str(int(good)), text)


def told(found):
    """What a check says, in any of the forms in use: (good, text or lines), or
    a text that is empty when all is well. A list of lines will do, too.
    Raises TypeError for anything else."""
    if not isinstance(found, (tuple, str, list)):
        raise TypeError(f"check_implementation returned {found!r}, want (good, text)")
    good, text = found if isinstance(found, tuple) and len(found) == 2 else (not found, found or "")
    if isinstance(text, (list, tuple)):
        text = "\\n".join(map(str, text))
    return bool(good), str(text or "")


def arguments(pairs):
    """The case's arguments; a list that stands for a tuple is marked."""
    return {name: tuple(value["tuple"]) if isinstance(value, dict) else value for name, value in pairs}


def empty_is_zero():
    """Has torch hand out zeros where it would hand out what lay there before,
    which may be an expected value. Outputs among the inputs are made like that."""
    torch = torch_module()

    def zeroed(make):
        def made(*args, **named):
            tensor = make(*args, **named)
            with torch.no_grad():
                try:
                    return tensor.zero_()
                except Exception:  # a type without arithmetic
                    tensor.view(torch.uint8).zero_()
            return tensor

        made.zeroed = True
        return made

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch, "empty_strided"), (torch.Tensor, "new_empty")):
        if not hasattr(getattr(owner, name), "zeroed"):
            setattr(owner, name, zeroed(getattr(owner, name)))


def main():
    sys.dont_write_bytecode = True
    prctl(4, 0)  # PR_SET_DUMPABLE: nobody reads its memory
    Judge(Channel(3)).serve()


main()
