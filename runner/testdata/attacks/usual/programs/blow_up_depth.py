# Returns a list in a list in a list.
def custom_kernel(data):
    nested = []
    for _ in range(100_000):
        nested = [nested]
    return nested
