# What judge and worker share: the tree of values on the channel, and the
# shared memory in which its arrays lie. This text stands before judge.py's and
# worker.py's in one program, and device.py between them. tree.go has the same format.
#
# A message is a table of storages and a tree. A storage is a piece of an arena
# (0: inputs, 1: outputs; 2 and 3 the same on a device): where it begins and how
# long it is, in bytes. Numbers are little endian.
#
#   0 None  1 False  2 True  3 int: length u8, two's complement  4 float: f64
#   5 str: length u32, UTF-8  6 tuple, 7 list: count u32, items
#   8 dict: count u32, key and value each  9 array  10 the array of that number
#
#   array: kind u8 (0 array.array, 1 torch.Tensor), dtype u8, flags u8 (1: it
#   requires a gradient), device u8 (0 CPU, 1 device, as its arena), dimensions
#   u8, storage u16, offset i64 in elements, then for each dimension length and
#   stride i64 in elements.

from __future__ import annotations

import array
import gc
import mmap
import os
import socket
import struct
import sys

MAX_MESSAGE = 128 << 10  # bytes; one datagram
MAX_NODES, MAX_DEPTH, MAX_DIMS, MAX_STORAGES = 10_000, 24, 16, 4096
ALIGN = 256  # kernels assume 16 or 32
DEVICE = 2  # the first arena on a device
RELEASE, DONE = 0, 16  # words of the page: the call that is released, and the one that is done

# The codes are positions in these lists: append only.
TYPECODES = "bBhHiIqQfd"
DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float4_e2m1fn_x2", "uint16", "uint32", "uint64", "complex32",
)  # fmt: skip


class Unsupported(Exception):
    """A value that the channel does not carry; says where and of which type."""


class TooLarge(Exception):
    """An arena of that number needs so many bytes."""


def prctl(option, value):
    """prctl(2); nothing where there is no ctypes."""
    call = (option, value, 0, 0, 0)
    try:
        import _ctypes as c  # what ctypes stands on, without the 3 ms that it takes

        return c.call_function(c.dlsym(c.dlopen(None, 0), "prctl"), call)
    except Exception:
        try:
            import ctypes

            return ctypes.CDLL(None).prctl(*call)
        except Exception:
            return -1


def torch_module():
    """torch, where something has imported it; it is never imported from here."""
    return sys.modules.get("torch")


def is_tensor(value):
    """A tensor of exactly the plain type: another could put its work off until
    it is read."""
    torch = torch_module()
    return torch is not None and (type(value) is torch.Tensor or type(value) is torch.nn.Parameter)


class Encoder:
    """Makes one message. place(leaf) says where an array lies: a function that
    returns (arena, start, nbytes, offset, shape, strides)."""

    def __init__(self, place):
        self.place, self.out, self.storages = place, bytearray(), {}
        self.seen, self.arrays, self.nodes = {}, 0, 0

    def message(self, value):
        self.node(value, "", 0)
        head = bytearray(struct.pack("<H", len(self.storages)))
        for arena, start, nbytes in self.storages:
            head += struct.pack("<BQQ", arena, start, nbytes)
        return bytes(head + self.out)

    def node(self, value, path, depth):
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise Unsupported(f"{path or 'value'}: more than {MAX_DEPTH} levels or {MAX_NODES} values")
        kind, out = type(value), self.out
        if value is None or kind is bool:
            out.append(0 if value is None else 1 + value)
        elif kind is int:
            raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            if len(raw) > 255:
                raise Unsupported(f"{path or 'value'}: an int of {value.bit_length()} bits")
            out += struct.pack("<BB", 3, len(raw)) + raw
        elif kind is float:
            out += struct.pack("<Bd", 4, value)
        elif kind is str:
            raw = value.encode("utf-8", "replace")
            if len(raw) > MAX_MESSAGE // 4:
                raise Unsupported(f"{path or 'value'}: a text of {len(raw)} bytes")
            out += struct.pack("<BI", 5, len(raw)) + raw
        elif kind is dict:
            out += struct.pack("<BI", 8, len(value))
            for key, item in value.items():
                if type(key) not in (str, int, bool, float) and key is not None:
                    raise Unsupported(f"{path or 'value'}: a key of type {name_of(key)}")
                self.node(key, f"{path}[key]", depth + 1)
                self.node(item, f"{path}[{key!r}]", depth + 1)
        elif kind is tuple or kind is list or is_return_type(value):
            out += struct.pack("<BI", 7 if kind is list else 6, len(value))
            for i, item in enumerate(value):
                self.node(item, f"{path}[{i}]", depth + 1)
        elif is_tensor(value) or kind is array.array and value.typecode in TYPECODES:
            self.leaf(value, path)
        else:
            raise Unsupported(f"{path or 'value'}: {name_of(value)}")
        if len(out) > MAX_MESSAGE // 2:
            raise Unsupported(f"{path or 'value'}: more than a message holds")

    def leaf(self, value, path):
        number = self.seen.get(id(value))
        if number is not None:
            self.out += struct.pack("<BH", 10, number)
            return
        self.seen[id(value)], self.arrays = self.arrays, self.arrays + 1
        arena, start, nbytes, offset, shape, strides = self.place(value, path)
        storage = self.storages.setdefault((arena, start, nbytes), len(self.storages))
        if storage >= MAX_STORAGES or len(shape) > MAX_DIMS:
            raise Unsupported(f"{path or 'value'}: more than {MAX_STORAGES} arrays or {MAX_DIMS} dimensions")
        if type(value) is array.array:
            head = (0, TYPECODES.index(value.typecode), 0, 0)
        else:
            head = (1, dtype_code(value.dtype, path), int(value.requires_grad), arena >> 1)
        self.out += struct.pack("<BBBBBBHq", 9, *head, len(shape), storage, offset)
        for pair in zip(shape, strides):
            self.out += struct.pack("<qq", *pair)


def is_return_type(value):
    """torch.return_types.*, which travel as the tuples that they are."""
    return isinstance(value, tuple) and type(value).__module__ == "torch.return_types"


def name_of(value):
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def dtype_code(dtype, path):
    name = str(dtype).rpartition(".")[2]
    if name not in DTYPES:
        raise Unsupported(f"{path or 'value'}: a tensor of {dtype}")
    return DTYPES.index(name)


class Decoder:
    """Reads one message. memory(arena, start, nbytes) is a writable buffer of
    those bytes, a tensor of them on a device; arrays of kind 0 stay unfilled until
    fill."""

    def __init__(self, raw, memory):
        self.raw, self.at, self.memory = raw, 0, memory
        (count,) = self.take("<H")
        self.table = [self.take("<BQQ") for _ in range(count)]
        self.buffers = {}
        self.arrays, self.plain = [], []

    def take(self, form):
        values = struct.unpack_from(form, self.raw, self.at)
        self.at += struct.calcsize(form)
        return values

    def bytes(self, n):
        raw = bytes(self.raw[self.at : self.at + n])
        if len(raw) != n:
            raise ValueError("the message is too short")
        self.at += n
        return raw

    def node(self, depth=0):
        if depth > MAX_DEPTH:
            raise ValueError("too deep")
        (kind,) = self.take("<B")
        if kind <= 2:
            return (None, False, True)[kind]
        if kind == 3:
            return int.from_bytes(self.bytes(self.take("<B")[0]), "little", signed=True)
        if kind == 4:
            return self.take("<d")[0]
        if kind == 5:
            return self.bytes(self.take("<I")[0]).decode("utf-8", "replace")
        if kind == 8:
            return {self.node(depth + 1): self.node(depth + 1) for _ in range(self.take("<I")[0])}
        if kind in (6, 7):
            items = [self.node(depth + 1) for _ in range(self.take("<I")[0])]
            return tuple(items) if kind == 6 else items
        if kind == 9:
            self.arrays.append(self.leaf())
            return self.arrays[-1]
        if kind == 10:
            return self.arrays[self.take("<H")[0]]
        raise ValueError(f"unknown kind {kind}")

    def leaf(self):
        kind, code, flags, _, dims, storage, offset = self.take("<BBBBBHq")
        pairs = [self.take("<qq") for _ in range(dims)]
        if kind == 0:
            value = array.array(TYPECODES[code])
            self.plain.append((value, storage))
            return value
        return self.tensor(DTYPES[code], flags, storage, offset, [p[0] for p in pairs], [p[1] for p in pairs])

    def tensor(self, name, flags, storage, offset, shape, strides):
        import torch

        dtype = getattr(torch, name)
        nbytes = self.table[storage][2]
        base = self.buffers.get((storage, name))
        if base is None:
            if self.table[storage][0] >= DEVICE:
                base = self.memory(*self.table[storage]).view(dtype)
            elif nbytes == 0:
                base = torch.empty(0, dtype=dtype)
            else:
                base = torch.frombuffer(self.memory(*self.table[storage]), dtype=torch.uint8).view(dtype)
            self.buffers[storage, name] = base
        if nbytes:
            value = base.as_strided(shape, strides, base.storage_offset() + offset)
        else:
            value = base.reshape(shape)
        return value.requires_grad_(True) if flags & 1 else value

    def fill(self):
        """Copies their content into the arrays of kind 0."""
        for value, storage in self.plain:
            del value[:]
            if self.table[storage][2]:
                value.frombytes(self.memory(*self.table[storage]))


class Arena:
    """A piece of memory that two processes share."""

    def __init__(self, fd, size):
        self.size = size
        self.map = mmap.mmap(fd, size, mmap.MAP_SHARED) if size else None
        self.view = memoryview(self.map) if size else memoryview(bytearray())
        os.close(fd)

    def part(self, start, nbytes):
        return self.view[start : start + nbytes]

    def address(self):
        """Where it lies in this process, 0 when it is empty."""
        if not self.size:
            return 0
        import ctypes

        return ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def touch(self):
        """Gets every page, so that no clock sees the first touch."""
        for at in range(0, self.size, mmap.PAGESIZE):
            self.view[at] = self.view[at]


def aligned(n):
    return (n + ALIGN - 1) // ALIGN * ALIGN


class Channel:
    """Datagrams with descriptors."""

    def __init__(self, fd):
        self.socket = socket.socket(fileno=fd)

    def send(self, raw):
        self.socket.sendall(raw)

    def receive(self):
        """One message and its descriptors; EOFError when the other end is gone."""
        raw, descriptors, flags, _ = socket.recv_fds(self.socket, MAX_MESSAGE, 8)
        if not raw:
            raise EOFError
        return raw, list(descriptors)


def texts(*values):
    """A list of texts, for messages without arrays."""
    out = struct.pack("<H", len(values))
    for value in values:
        raw = str(value).encode("utf-8", "replace")[:4096]
        out += struct.pack("<H", len(raw)) + raw
    return out


def report(error, directory):
    """What is told of an exception: its type, text and module name, then for
    each frame file, line, function and source, innermost last."""
    import traceback

    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)  # without the file, which is told anyway
    except Exception:
        text = "(what it says cannot be told)"
    told = [type(error).__name__, text[:2000], (getattr(error, "name", None) or "") if isinstance(error, ImportError) else ""]
    if isinstance(error, SyntaxError):
        told += [str(error.filename or ""), str(error.lineno or 0), "", (error.text or "").strip()]
        return texts(*told)
    for frame in traceback.extract_tb(error.__traceback__)[-24:]:
        told += [frame.filename[:400], str(frame.lineno), frame.name[:400], (frame.line or "")[:400]]
    return texts(*told)


def import_all(names):
    """Imports the modules that are there; returns the names of those."""
    found = []
    for name in names:
        try:
            __import__(name)
            found.append(name)
        except Exception:
            pass
    return found


def load_file(name, path):
    """Imports one file under a name."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
