# Open the report anew through /proc and write a whole one into it.
from attack import *


def go():
    text = forgery()
    for pid in ancestors():
        try:
            with open(f"/proc/{pid}/fd/{report_fd()}", "wb", buffering=0) as file:
                file.write(text)
                tell("reopened the report")
        except OSError:
            pass
    strike(signal.SIGKILL)


custom_kernel = kernel = once(go)
