from attack import *


def go():
    os.write(report_fd(), forgery("benchmark", mean=0.001))
    os._exit(0)


kernel = once(go)
