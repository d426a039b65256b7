# Raises something that cannot be told.
class Evil(Exception):
    def __str__(self):
        raise self

    __repr__ = __str__


def custom_kernel(data):
    raise Evil
