# 400 processes at most, of which each makes others as long as there is room.
from attack import *


def go():
    room, give = os.pipe()
    os.write(give, b"x" * 400)
    os.close(give)

    def grow():
        while True:
            try:
                if not os.read(room, 1):
                    break
                if os.fork() == 0:
                    os.setsid()
                    signal.alarm(LIFE)
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
            except OSError:
                break
        pause(LIFE)
        os._exit(0)

    if os.fork() == 0:
        signal.alarm(LIFE)
        grow()
    pause(0.5)


custom_kernel = kernel = once(go)
