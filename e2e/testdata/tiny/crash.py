import os


def custom_kernel(n):
    os.abort()
