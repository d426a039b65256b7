from attack import *


def go():
    os.write(report_fd(), forgery("benchmark").replace(b"mean: 2000.0", b"mean: nan").replace(b"runs: 4", b"runs: 1_0"))
    os._exit(0)


kernel = once(go)
