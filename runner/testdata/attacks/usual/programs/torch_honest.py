def custom_kernel(data):
    a, b, out = data
    out[...] = a + b
    return out
