#!/usr/bin/env python3
"""Judge a kernel: python3 eval.py test|benchmark|leaderboard CASES

Two processes. The judge (this one) makes the inputs, checks the outputs and
reports; the worker, a child, imports submission.py and does nothing else. The
worker is never believed: its outputs are checked here, against inputs that
never left this process, and its timings are held against the judge's clock.

The task's folder holds, beside this file:

    submission.py   custom_kernel(data) -> output
    reference.py    generate_input(**case) -> tuple of arrays
                    check(data, output) -> "" when right, else what is wrong:
                    a line, or the two halves of one, (where, values); the
                    values are left out where they could betray POPCORN_SEED
                    CALL_LIMIT_S (optional) seconds that one call may take
    task.py         the types that both talk about

An array is an array.array, or a list of equal rows of them. Where torch sees a
GPU the submission gets tensors on it instead, and may return one. reference.py
always sees array.array.

What the caller provides, in the format of Kernelbot's evaluator:

    CASES           one case per line, "name: value; name: value"
    POPCORN_FD      number of an open pipe; the report goes there as "key: value"
    POPCORN_SEED    optional secret, mixed into every case that has a seed

Exit status: 0 all right, 112 some case failed, 113 CASES cannot be used,
111 POPCORN_FD cannot be used, 2 wrong usage, 1 a fault in the task itself.
"""

from __future__ import annotations

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Python puts the script's folder first; without it no file that lies beside
# this one can stand in for a module of Python's own, or for torch.
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != HERE]

import ast
import ctypes
import importlib.util
import inspect
import math
import re
import resource
import select
import signal
import struct
import subprocess
import time
import traceback
from array import array
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Callable, Optional, Union

START_LIMIT_S = 60.0  # worker start and `import submission`
CALL_LIMIT_S = 10.0  # one call of the kernel, data both ways included
BUDGET_S = {"benchmark": 0.2, "leaderboard": 0.3}  # repeats of one case
ECHO_S = 0.2  # sending one case's data there and back, before that
TARGET_ERROR = 0.001  # stop repeating when err/mean is below
MIN_RUNS, MAX_RUNS = 3, 1000
DOUBT_RUNS, DOUBT_S = 10, 2.0  # repeats, seconds more before a worker is called a liar
# What the worker's clock and the judge's may differ by, beside the data's way
# there and back: caches are cold after a kernel, and processes wake up late.
SLACK_NS = 300_000
MIN_KERNEL_NS = 1_000  # the least that is counted; the clock knows no less
MAX_FRAME = 256 << 20  # bytes in one message from the worker
MAX_TEXT = 500  # characters in one value of the report

OK, USAGE, PIPE_FAILED, VALIDATE_FAIL, TEST_SPEC = 0, 2, 111, 112, 113


class Fault(Exception):
    """The submission failed this case; the text goes into the report."""


class Gone(Fault):
    """The worker died, hung or talks nonsense: no further call is possible."""


class BadCases(Exception):
    """The cases file cannot be used."""


# --- the cases ---------------------------------------------------------------


@dataclass
class Case:
    spec: str  # the line as it came, for the report
    args: dict[str, Any]  # for generate_input


def parse_value(text: str) -> Any:
    """Read one value as Python's str() writes it: 128, 0.5, True, None, [1, 2], word."""
    if re.fullmatch(r"[A-Za-z_][\w.\-/]*", text) and text not in ("True", "False", "None"):
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = ...
    if value is None or isinstance(value, (bool, int, float, list, tuple)):
        return value
    raise BadCases(f"got value {text!r}, want a number, word, True, False, None or [list]")


def parse_case(line: str) -> dict[str, Any]:
    """Read "name: value; name: value"; a semicolon inside brackets does not split."""
    args: dict[str, Any] = {}
    for part in re.split(r";(?![^\[(]*[\])])", line):
        name, colon, value = part.partition(":")
        name = name.strip()
        if not colon or not name.isidentifier():
            raise BadCases(f"got {part.strip()!r}, want name: value")
        if name in args:
            raise BadCases(f"{name!r} is given twice")
        args[name] = parse_value(value.strip())
    return args


def mix_seed(case_seed: int, secret: int) -> int:
    """Kernelbot's rule: a + (a+b)(a+b+1)/2, distinct for distinct pairs."""
    total = case_seed + secret
    return case_seed + total * (total + 1) // 2


def read_cases(path: str, secret: Optional[int], generate: Callable[..., Any]) -> list[Case]:
    """Read the cases file, one case per line, and mix in the secret seed."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as err:
        raise BadCases(str(err)) from err
    cases = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            args = parse_case(line)
            inspect.signature(generate).bind(**args)
            if "seed" in args:
                if type(args["seed"]) is not int:
                    raise BadCases(f"seed: got {args['seed']!r}, want an integer")
                if secret is not None:
                    args["seed"] = mix_seed(args["seed"], secret)
        except (BadCases, TypeError) as err:
            raise BadCases(f"line {number}: {err}") from err
        cases.append(Case(line, args))
    return cases


# --- arrays on the wire ------------------------------------------------------
#
# Nothing that comes from the worker is ever unpickled or evaluated. Arrays
# travel as: count u8, then for each: typecode (1 byte, as array.array's),
# dimensions u8, each length u64 (little endian), then the elements.

TYPECODES = "bBhHiIqQfd"


Bytes = Union[bytes, memoryview]


def flatten(value: Any) -> tuple[str, tuple[int, ...], Bytes]:
    """Typecode, shape and bytes of one array, not copied where that can be
    had. Exact types only: an array or tensor of a derived class could put its
    work off until it is read."""
    if type(value) is array and value.typecode in TYPECODES:
        return value.typecode, (len(value),), memoryview(value).cast("B")
    if type(value) is list and value:
        rows = [flatten(row) for row in value]
        code, shape, _ = rows[0]
        if any(row[:2] != (code, shape) for row in rows):
            raise TypeError("rows differ in type or length")
        return code, (len(rows), *shape), b"".join(row[2] for row in rows)
    torch = sys.modules.get("torch")
    if torch is not None and type(value) is torch.Tensor:
        tensor = value.detach().to("cpu").contiguous()
        if tensor.dtype in (torch.float16, torch.bfloat16):
            tensor = tensor.float()
        code = {v: k for k, v in torch_types(torch).items()}.get(tensor.dtype)
        if code is None:
            raise TypeError(f"tensors of {tensor.dtype} cannot be returned")
        raw = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
        return code, tuple(tensor.shape) or (1,), raw
    kind = f"array({value.typecode!r})" if type(value) is array else type(value).__name__
    raise TypeError(f"got {kind}, want an array.array of {TYPECODES}, a list of rows of them, or a torch.Tensor")


def pack(values: tuple) -> list[Bytes]:
    """The arrays in the pieces of which a message is made."""
    out: list[Bytes] = [bytes([len(values)])]
    for value in values:
        code, shape, raw = flatten(value)
        out.append(struct.pack(f"<cB{len(shape)}Q", code.encode(), len(shape), *shape))
        out.append(raw)
    return out


def unpack(raw: memoryview, build: Callable[[array, tuple[int, ...]], Any]) -> tuple:
    """Read what pack wrote; ValueError for anything else. build makes one
    array from its flat elements and its shape."""
    at, values = 1, []
    try:
        for _ in range(raw[0]):
            code, dims = struct.unpack_from("<cB", raw, at)
            shape = struct.unpack_from(f"<{dims}Q", raw, at + 2)
            at += 2 + 8 * dims
            flat = array(code.decode() if code.decode() in TYPECODES else "?")
            count = math.prod(shape)
            if not 1 <= dims <= 8 or (count == 0 and dims > 1) or count * flat.itemsize > len(raw) - at:
                raise ValueError(f"impossible shape {shape[:8]}")
            flat.frombytes(raw[at : at + count * flat.itemsize])
            at += count * flat.itemsize
            values.append(build(flat, shape))
    except (struct.error, IndexError, UnicodeDecodeError) as err:
        raise ValueError(str(err)) from err
    if at != len(raw):
        raise ValueError(f"{len(raw) - at} bytes too many")
    return tuple(values)


def as_rows(flat: array, shape: tuple[int, ...]) -> Any:
    """array.array for one dimension, lists of rows for more."""
    if len(shape) == 1:
        return flat
    step = len(flat) // shape[0]
    return [as_rows(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


# --- messages between judge and worker ----------------------------------------

LOAD, ECHO, CALL = b"L", b"E", b"C"  # judge to worker
READY, RESULT, TROUBLE = b"R", b"V", b"X"  # worker to judge


class Link:
    """Framed messages over two pipes: kind (1 byte), length u64, payload."""

    def __init__(self, read_fd: int, write_fd: int, alive: Callable[[], bool] = lambda: True):
        self.read_fd, self.write_fd, self.alive = read_fd, write_fd, alive
        self.deadline = math.inf  # time.monotonic() after which waiting is over
        self.buffer = bytearray(1 << 16)
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)

    def send(self, kind: bytes, *payload: Bytes) -> None:
        head = kind + struct.pack("<Q", sum(len(part) for part in payload))
        rest = [memoryview(part) for part in (head, *payload) if part]
        while rest:
            self._wait(self.write_fd, select.POLLOUT)
            try:
                sent = os.writev(self.write_fd, rest[:16])
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise EOFError from None
            while rest and sent >= len(rest[0]):
                sent -= len(rest.pop(0))
            if sent:
                rest[0] = rest[0][sent:]

    def receive(self) -> tuple[bytes, memoryview]:
        """One message; its payload is valid until the next one is received."""
        kind, length = struct.unpack("<cQ", self._read(9))
        if length > MAX_FRAME:
            raise ValueError(f"a message of {length} bytes, more than {MAX_FRAME}")
        return kind, self._read(length)

    def _read(self, count: int) -> memoryview:
        got = 0
        while got < count:
            if got == len(self.buffer):  # grows with what arrives: a length alone costs no memory
                self.buffer = self.buffer + bytes(got)
            self._wait(self.read_fd, select.POLLIN)
            try:
                more = os.readv(self.read_fd, [memoryview(self.buffer)[got:count]])
            except BlockingIOError:
                continue
            if not more:
                raise EOFError
            got += more
        return memoryview(self.buffer)[:count]

    def _wait(self, fd: int, event: int) -> None:
        poll = select.poll()
        poll.register(fd, event)
        while True:
            ready = poll.poll(50)
            if time.monotonic() > self.deadline:  # looked at even if a trickle never lets this wait
                raise TimeoutError
            if ready:
                return
            # A descendant may hold the pipe of a worker that is long dead.
            if not self.alive() and not poll.poll(0):
                raise EOFError


# --- what the system offers for keeping the two apart -------------------------

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38


def prctl(option: int, value: int) -> None:
    """prctl(2) on Linux; elsewhere nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def give_up_privileges() -> None:
    """No capability now nor through exec, so that even a worker that runs as
    root cannot look into the judge, which is not dumpable."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if sys.platform == "linux":
        ctypes.CDLL(None).capset(struct.pack("=Ii", 0x20080522, 0), bytes(24))


def widen(fd: int) -> None:
    """Ask for a 1 MiB pipe, so that most messages pass in one piece."""
    try:
        import fcntl

        fcntl.fcntl(fd, 1031, 1 << 20)  # F_SETPIPE_SZ
    except OSError:
        pass


def kill_descendants() -> None:
    """Kill and collect every child, and what is left behind by each."""
    me = os.getpid()
    while True:
        try:
            with open(f"/proc/self/task/{me}/children", encoding="ascii") as file:
                pids = [int(pid) for pid in file.read().split()]
        except OSError:
            return
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass


def load(name: str) -> ModuleType:
    """Import HERE/name.py by its path."""
    if HERE not in sys.path:
        sys.path.append(HERE)  # last: see above
    spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# --- the worker ----------------------------------------------------------------


def torch_types(torch: ModuleType) -> dict[str, Any]:
    return {"B": torch.uint8, "b": torch.int8, "h": torch.int16, "i": torch.int32,
            "q": torch.int64, "f": torch.float32, "d": torch.float64}  # fmt: skip


class Host:
    """Without a GPU: arrays stay as they are."""

    def build(self, flat: array, shape: tuple[int, ...]) -> Any:
        return as_rows(flat, shape)

    def settle(self) -> None:
        """Wait until everything that was started has ended."""

    def flush(self) -> None:
        """Make sure that no cache still holds the inputs."""


class GPU(Host):
    """With torch and a GPU (CUDA or ROCm): tensors on the current device."""

    def __init__(self, torch: ModuleType):
        self.torch = torch
        self.types = torch_types(torch)
        self.scratch = torch.empty(64 << 20, dtype=torch.int32, device="cuda")

    def build(self, flat: array, shape: tuple[int, ...]) -> Any:
        flat_tensor = self.torch.frombuffer(bytearray(flat.tobytes()), dtype=self.types[flat.typecode])
        return flat_tensor.reshape(shape).to("cuda")

    def settle(self) -> None:
        self.torch.cuda.synchronize()  # all streams of the device

    def flush(self) -> None:
        self.scratch.zero_()  # 256 MiB, more than any L2


def find_device() -> Host:
    if importlib.util.find_spec("torch") is None:
        return Host()
    import torch

    return GPU(torch) if torch.cuda.is_available() else Host()


def call(kernel: Callable[[tuple], Any], raw: memoryview, device: Host) -> list[Bytes]:
    """Run the kernel once; returns its nanoseconds (u64) and its packed output."""
    data = unpack(raw, device.build)
    device.flush()
    device.settle()
    start = time.perf_counter_ns()
    output = kernel(data)
    device.settle()
    elapsed = time.perf_counter_ns() - start
    packed = pack(output if type(output) is tuple else (output,))
    return [struct.pack("<Q", elapsed), *packed]


def work(read_fd: int, write_fd: int) -> int:
    """The worker's whole life: answer messages until the judge hangs up."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    give_up_privileges()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    link = Link(read_fd, write_fd)
    device = find_device()
    kernel: Callable[[tuple], Any] = lambda data: data
    while True:
        try:
            kind, payload = link.receive()
        except EOFError:
            return OK
        try:
            if kind == LOAD:
                load("task")
                kernel = load("submission").custom_kernel
                link.send(READY)
            else:
                link.send(RESULT, *call(kernel, payload, device))
        except Exception as err:
            traceback.print_exc()
            where = "importing submission.py" if kind == LOAD else "custom_kernel"
            link.send(TROUBLE, f"{where}: {type(err).__name__}: {err}".encode("utf-8", "replace")[:4096])


# --- the judge -----------------------------------------------------------------


@dataclass
class Answer:
    output: Any
    kernel_ns: int  # what the worker says the kernel took
    wall_ns: int  # what the judge saw: data there, kernel, data back

    @property
    def gap_ns(self) -> int:
        return self.wall_ns - self.kernel_ns

    @property
    def lie(self) -> Fault:
        return Fault(f"timing: the worker's clock says {self.kernel_ns} ns, the judge's {self.wall_ns} ns")

    def figure(self, overhead_ns: int) -> tuple[int, bool]:
        """What counts, in nanoseconds, and whether the claim is wild: less
        than half of that."""
        if self.gap_ns < 0:
            raise self.lie
        if self.gap_ns <= overhead_ns + SLACK_NS:
            return max(self.kernel_ns, MIN_KERNEL_NS), False
        seen = max(self.wall_ns - overhead_ns, MIN_KERNEL_NS)
        return seen, self.kernel_ns < seen / 2


class Task:
    """The task's reference, and whether its texts may name values."""

    def __init__(self, reference: ModuleType, secret: bool):
        self.reference, self.secret = reference, secret

    def inputs(self, args: dict[str, Any]) -> tuple:
        return self.reference.generate_input(**args)

    def problem(self, data: tuple, output: Any) -> str:
        """Empty when the output is right, else what is wrong with it. Values
        would let anyone try out secrets until one makes the same inputs."""
        try:
            found = self.reference.check(data, output)
        except Exception as err:  # the output is hostile, and may have any shape
            found = (f"the output cannot be checked: {type(err).__name__}", str(err))
            return found[0] if self.secret else ": ".join(found)
        if type(found) is tuple:
            return f"{found[0]} is wrong" if self.secret else ": ".join(found)
        return found


class Worker:
    """The judge's side of one worker process."""

    def __init__(self, call_limit_s: float):
        self.call_limit_s = call_limit_s
        self.loaded = False
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        widen(down_write)
        widen(up_write)
        self.process = subprocess.Popen(
            # -u: the worker is killed in the end, and what it printed must be out by then.
            [sys.executable, "-u", os.path.abspath(__file__), "--worker", str(down_read), str(up_write)],
            stdin=subprocess.DEVNULL,
            env={k: v for k, v in os.environ.items() if not k.startswith("POPCORN_")},
            pass_fds=(down_read, up_write),
            start_new_session=True,
        )
        os.close(down_read)
        os.close(up_write)
        self.link = Link(up_read, down_write, lambda: self.process.poll() is None)

    def _ask(self, kind: bytes, payload: list[Bytes], want: bytes, limit_s: float) -> memoryview:
        self.link.deadline = time.monotonic() + limit_s
        try:
            self.link.send(kind, *payload)
            got, reply = self.link.receive()
        except TimeoutError:
            raise Gone(f"no answer within {limit_s:g} s") from None
        except EOFError:
            raise Gone(self._obituary()) from None
        except ValueError as err:
            raise Gone(f"the answer is malformed: {err}") from None
        if got == TROUBLE:
            text = bytes(reply[:4096]).decode("utf-8", "replace")
            raise (Gone if kind == LOAD else Fault)(text)
        if got != want:
            raise Gone("the answer is malformed: unexpected message")
        return reply

    def _obituary(self) -> str:
        try:
            status = self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return "the worker process closed its connection"
        if status < 0:
            return f"the worker process was killed by signal {-status} ({signal.Signals(-status).name})"
        return f"the worker process ended with exit status {status}"

    def load(self) -> None:
        """Import the submission, once."""
        if not self.loaded:
            self._ask(LOAD, [], READY, START_LIMIT_S)
            self.loaded = True

    def call(self, data: tuple, kind: bytes = CALL) -> Answer:
        """Send the inputs, run the kernel on them, get the output back."""
        payload = pack(data)
        limit = self.call_limit_s if self.loaded else START_LIMIT_S
        start = time.perf_counter_ns()
        reply = self._ask(kind, payload, RESULT, limit)
        wall = time.perf_counter_ns() - start
        try:
            (elapsed,) = struct.unpack_from("<Q", reply)
            values = unpack(reply[8:], as_rows)
        except (struct.error, ValueError) as err:
            raise Gone(f"the answer is malformed: {err}") from None
        return Answer(values[0] if len(values) == 1 else values, elapsed, wall)

    def overhead_ns(self, make: Callable[[], tuple]) -> int:
        """How long the data's way there and back takes, without a kernel. Only
        before load: a submission could make it look longer. The least of a few,
        as a busy machine makes it longer, too; each with inputs just made, as
        repeats have them: they lie in no cache yet."""
        assert not self.loaded
        end, least = time.monotonic() + ECHO_S, math.inf
        for n in range(20):
            least = min(least, self.call(make(), ECHO).gap_ns)
            if n >= 4 and time.monotonic() > end:
                break
        return int(least)


def attempt(worker: Worker, task: Task, args: dict[str, Any]) -> Answer:
    """One call on fresh inputs, its output checked; Fault when it is wrong."""
    data = task.inputs(args)
    answer = worker.call(data)
    problem = task.problem(data, answer.output)
    if problem:
        raise Fault(problem)
    return answer


def fresh(args: dict[str, Any]) -> dict[str, Any]:
    """The same case with a seed that nobody can foresee."""
    return {**args, "seed": int.from_bytes(os.urandom(7), "little")} if "seed" in args else args


def attempt_twice(worker: Worker, task: Task, args: dict[str, Any]) -> None:
    """A test: the case as it is, then with inputs that a submission cannot have
    made beforehand from the case's seed, which is public or may leak."""
    attempt(worker, task, args)
    if "seed" not in args:
        return
    try:
        attempt(worker, task, fresh(args))
    except Gone:
        raise
    except Fault as fault:
        raise Fault(f"{fault} (with a fresh seed)") from None


def spread(times: list[int]) -> tuple[float, float, float]:
    """Mean, sample standard deviation, and standard error of the mean."""
    mean = math.fsum(times) / len(times)
    std = math.sqrt(math.fsum((t - mean) ** 2 for t in times) / (len(times) - 1))
    return mean, std, std / math.sqrt(len(times))


def measure(worker: Worker, task: Task, case: Case, budget_s: float, overhead_ns: int) -> dict[str, Any]:
    """Repeat one case on fresh inputs, check every output, and give the
    figures in nanoseconds.

    Every repeat counts, so that no worker can choose among them. What counts
    is the worker's claim where it is at most overhead_ns + SLACK_NS below the
    judge's clock, else the judge's clock less overhead_ns: so whatever is
    claimed, a repeat counts at most overhead_ns + SLACK_NS less than it took.
    A claim of more than the judge's clock saw is a lie, and so are wild ones
    in more than half of the repeats: a machine that is busy with other things
    may delay some, and gets a little longer.
    """
    attempt(worker, task, case.args)  # warm-up: not counted
    times: list[int] = []
    wild = 0
    end = time.monotonic() + budget_s
    while True:
        answer = attempt(worker, task, fresh(case.args))
        counted, is_wild = answer.figure(overhead_ns)
        times.append(counted)
        wild += is_wild
        if len(times) < MIN_RUNS:
            continue
        mean, std, err = spread(times)
        late, full = time.monotonic() - end, len(times) >= MAX_RUNS
        if 2 * wild <= len(times):
            if err < TARGET_ERROR * mean or late > 0 or full:
                break
        elif full or (late > DOUBT_S and len(times) >= DOUBT_RUNS):
            raise answer.lie
    return {"runs": len(times), "mean": mean, "std": std, "err": err, "best": min(times), "worst": max(times)}


class Report:
    """The report: lines "key: value" on a file descriptor that is ours alone."""

    def __init__(self, fd: int):
        self.fd = fd

    def put(self, key: str, value: Any, limit: Optional[int] = MAX_TEXT) -> None:
        """Write one line, whatever the value holds."""
        text = " ".join(str(value).split())[:limit]
        text = "".join(c if c.isprintable() else "?" for c in text)
        rest = f"{key}: {text}\n".encode("utf-8", "replace")
        while rest:
            rest = rest[os.write(self.fd, rest) :]


def judge_all(report: Report, kind: str, cases: list[Case], judge: Callable[[int], dict[str, Any]]) -> bool:
    """Judge every case and report it under "kind.N."; whether all are right.
    When the worker is lost the rest is reported as failed, without waiting."""
    report.put(f"{kind}-count", len(cases))
    right, lost = True, ""
    for n, case in enumerate(cases):
        report.put(f"{kind}.{n}.spec", case.spec, None)  # whole: it says what was judged
        try:
            if lost:
                raise Fault(f"not run: the worker was lost in {lost}")
            result = {**judge(n), "status": "pass"}
        except Fault as fault:
            right = False
            result = {"status": "fail", "error": fault}
            if isinstance(fault, Gone):
                lost = f"{kind} {n}"
        for name, value in result.items():
            report.put(f"{kind}.{n}.{name}", value)
    return right


def judge(mode: str, report: Report, task: Task, cases: list[Case]) -> bool:
    """Run one mode with a worker of its own."""
    worker = Worker(getattr(task.reference, "CALL_LIMIT_S", CALL_LIMIT_S))

    def test(n: int) -> dict[str, Any]:
        worker.load()
        attempt_twice(worker, task, cases[n].args)
        return {}

    def benchmark(n: int) -> dict[str, Any]:
        worker.load()
        return measure(worker, task, cases[n], BUDGET_S[mode], overheads[n])

    try:
        if mode == "test":
            return judge_all(report, "test", cases, test)
        overheads = [worker.overhead_ns(lambda: task.inputs(c.args)) for c in cases]
        return judge_all(report, "benchmark", cases, benchmark)
    finally:
        kill_descendants()


def take_report() -> Optional[Report]:
    """The pipe named by POPCORN_FD, closed to every process started from here."""
    try:
        fd = int(os.environ.pop("POPCORN_FD", ""))
        os.set_inheritable(fd, False)
    except (ValueError, OverflowError, OSError):
        return None
    return Report(fd)


def fail(status: int, text: str) -> int:
    print(f"eval.py: error: {text}", file=sys.stderr)
    return status


def main(argv: list[str]) -> int:
    if argv[1:2] == ["--worker"]:
        return work(int(argv[2]), int(argv[3]))
    if len(argv) != 3:
        return fail(USAGE, "usage: eval.py test|benchmark|leaderboard CASES")
    mode = argv[1]
    if mode not in ("test", "benchmark", "leaderboard"):
        return fail(USAGE, f"got mode {mode!r}, have test, benchmark, leaderboard (no profile)")

    # Before anything else runs: no other process may read this one's memory,
    # environment or descriptors, and what the worker leaves behind is ours.
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    report = take_report()
    if report is None:
        return fail(PIPE_FAILED, "POPCORN_FD: want the number of an open file descriptor")
    seed = os.environ.pop("POPCORN_SEED", None)
    try:
        secret = None if seed is None else int(seed)
    except ValueError:
        return fail(TEST_SPEC, "POPCORN_SEED: want an integer")

    load("task")
    reference = load("reference")
    try:
        cases = read_cases(argv[2], secret, reference.generate_input)
    except BadCases as err:
        return fail(TEST_SPEC, f"{argv[2]}: {err}")
    if not cases and mode != "test":
        return fail(TEST_SPEC, f"{argv[2]}: no case to measure")

    right = judge(mode, report, Task(reference, secret is not None), cases)
    report.put("check", "pass" if right else "fail")
    return OK if right else VALIDATE_FAIL


if __name__ == "__main__":
    sys.exit(main(sys.argv))
