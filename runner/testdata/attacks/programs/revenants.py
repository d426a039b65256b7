# Processes that start a child anew whenever it dies, 200 times at most.
from attack import *


def go():
    room, give = os.pipe()
    os.write(give, b"x" * 200)
    os.close(give)

    def child():
        signal.alarm(LIFE)
        while os.read(room, 1):
            pid = os.fork()
            if pid == 0:
                os.setsid()
                signal.alarm(LIFE)
                pause(LIFE)
                os._exit(0)
            os.waitpid(pid, 0)

    for _ in range(4):
        daemon(child)
    pause(0.2)


custom_kernel = kernel = once(go)
