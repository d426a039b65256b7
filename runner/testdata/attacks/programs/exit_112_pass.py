from attack import *


def go():
    os.write(report_fd(), forgery())
    os._exit(112)


kernel = once(go)
