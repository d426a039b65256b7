import time


def custom_kernel(n):
    time.sleep(600)
    return n
