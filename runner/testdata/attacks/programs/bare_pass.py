from attack import *


def go():
    os.write(report_fd(), b"check: pass\n")
    os._exit(0)


kernel = once(go)
