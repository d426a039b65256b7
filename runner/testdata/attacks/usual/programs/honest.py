from array import array


def custom_kernel(data):
    a, b = data
    return array("f", [x + y for x, y in zip(a, b)])
