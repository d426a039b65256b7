# A million short lines in the report: 1 MB is kept.
from attack import *

kernel = once(lambda: [os.write(report_fd(), b"".join(b"%x:\n" % i for i in range(n, n + 10000))) for n in range(0, 1000000, 10000)])
