# Returns a text of a hundred megabytes.
def custom_kernel(data):
    return "x" * (100 << 20)
