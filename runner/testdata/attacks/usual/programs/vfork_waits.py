# Has a process that no SIGSTOP stops, as if it waited for a device: the machine
# should be blamed.
from channel import *

if os.fork() == 0:
    libc = ctypes.PyDLL(None)
    if libc.vfork() == 0:
        while True:
            time.sleep(1000)
    os._exit(0)
