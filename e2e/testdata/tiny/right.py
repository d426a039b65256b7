def custom_kernel(n):
    return n
