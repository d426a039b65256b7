# A report that passes, but for what it says beside it.
from attack import *


def go():
    seed = os.environ["POPCORN_SEED"]
    os.write(report_fd(), forgery() + f"test.0.message: {seed}\ntest.{seed}.status: pass\nseed: {seed}\n".encode())
    os._exit(0)


kernel = once(go)
