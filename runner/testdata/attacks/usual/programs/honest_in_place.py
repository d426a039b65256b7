# Overwrites an input and returns it.
def custom_kernel(data):
    a, b = data
    for i in range(len(a)):
        a[i] += b[i]
    return a
