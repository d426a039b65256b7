# 10 MB of results.
from attack import *

kernel = once(lambda: [os.write(report_fd(), b"note: " + b"x" * 99993 + b"\n") for _ in range(100)])
