# Returns a list that holds itself.
def custom_kernel(data):
    loop = []
    loop.append(loop)
    return loop
