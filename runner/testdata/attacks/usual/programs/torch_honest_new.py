# Returns a new tensor that wants a gradient.
def custom_kernel(data):
    a, b, _ = data
    return (a + b).requires_grad_(True)
