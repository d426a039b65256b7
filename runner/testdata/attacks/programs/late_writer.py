# A detached process writes the verdict after the judge has given it.
from attack import *


def go():
    fd, text = os.dup(report_fd()), b"check: pass\nbenchmark.0.mean: 1\n"

    def work():
        for _ in range(100):
            time.sleep(0.02)
            os.write(fd, text)

    daemon(work)


kernel = once(go)
