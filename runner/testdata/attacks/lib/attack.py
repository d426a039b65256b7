# What the programs of the corpus share. Every one of them is bounded and ends
# by itself: nothing lives longer than LIFE seconds, whatever the judge does.
import ctypes
import os
import re
import signal
import sys
import time

LIFE = 20
libc = ctypes.CDLL(None, use_errno=True)
# In the warm-up; the isolated harness has none, and its worker is warming always.
warming = sys.argv[0].endswith("submission.py")


def right(n, seed):
    return (n * 31 + seed * 17) % 1000003


def once(go):
    """A kernel that attacks on its first call and then gives a wrong answer."""
    done = []

    def kernel(*args):
        if not done:
            done.append(True)
            go()
        return 0

    return kernel


def tell(*words):
    print(*words, flush=True)


def pause(seconds):
    time.sleep(min(seconds, LIFE))


def read(path, limit=1 << 20):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(fd, limit)
    except OSError:
        return b""
    finally:
        os.close(fd)


SECRETS = re.compile(rb"kbcanary-[a-z]+-[0-9a-f]{16}|777[0-9]{12}|eJ[A-Za-z0-9+/=]{200,}")


def show(data):
    """Print every secret that data holds, as plainly as can be; where no word
    of it would be told, die of it."""
    for found in set(SECRETS.findall(data)):
        tell("stolen:", found.decode()[:400])
        if "CUDA_ATTACK_MUTE" in os.environ:
            os.abort()


def parent(pid):
    try:
        return int(read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    except (IndexError, ValueError):
        return 0


def is_runner(pid):
    return read(f"/proc/{pid}/cmdline").split(b"\0")[0].endswith(b"kbrun")


def strike(sig):
    """Signal the judge, a worker's parent."""
    if os.getppid() > 1:
        os.kill(os.getppid(), sig)


def ancestors():
    """From the parent up to kbrun's parent at most: nobody else's business."""
    found, pid = [], parent(os.getpid())
    while pid > 1 and len(found) < 8:
        found.append(pid)
        if is_runner(pid):
            break
        pid = parent(pid)
    return found


def runner():
    """kbrun's process, None when it cannot be seen."""
    return next((pid for pid in ancestors() if is_runner(pid)), None)


def specs():
    """The cases, as the harness was asked them."""
    for pid in [os.getpid()] + ancestors():
        for arg in read(f"/proc/{pid}/cmdline").split(b"\0"):
            if b"cases" in arg:
                return read(arg).decode().splitlines()
    return ["n: 1; seed: 5", "n: 2; seed: 6"]


def forgery(kind="test", lines=None, mean=2000.0):
    """A whole report that says pass and adds up."""
    lines = specs() if lines is None else lines
    out = [f"{kind}-count: {len(lines)}"]
    for i, line in enumerate(lines):
        out.append(f"{kind}.{i}.spec: {line}")
        if kind == "test":
            out.append(f"test.{i}.status: pass")
            continue
        figures = {"runs": 4, "mean": mean, "std": 0.0, "err": 0.0, "best": mean, "worst": mean}
        out += [f"benchmark.{i}.{name}: {value}" for name, value in figures.items()]
    return "\n".join(out + ["check: pass", ""]).encode()


def report_fd():
    return int(os.environ.get("POPCORN_FD", "3"))


def daemon(work):
    """Run work in a process without any tie to this one but its files."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.alarm(LIFE)
    for sig in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(sig, signal.SIG_IGN)
    try:
        work()
    finally:
        os._exit(0)
