# Reach a server on this machine: the tester's port comes by an allowed variable.
import socket

from attack import *


def go():
    try:
        with socket.create_connection(("127.0.0.1", int(os.environ["CUDA_ATTACK_PORT"])), timeout=1) as s:
            s.sendall(b"hello")
            tell("reached the network")
    except OSError:
        pass


if warming:
    go()
custom_kernel = kernel = once(go)
