# Report cases that are easier than what was asked.
from attack import *


def go():
    os.write(report_fd(), forgery(lines=["n: 1; seed: 1"] * len(specs())))
    os._exit(0)


kernel = once(go)
