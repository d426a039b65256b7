# Bytes that are no text, NUL, escapes: in the output, the report and its keys.
from attack import *

BYTES = b"a\xff\xfe\x00b\x1b[2J\x1b]0;title\x07\xed\xa0\x80\xe2\x80\xae\x9b31m\r\n"


def go():
    for fd in (1, 2, report_fd()):
        os.write(fd, BYTES)
    os.write(report_fd(), b"k\x00\xff: " + BYTES + b"\xe2\x82")


kernel = once(go)
