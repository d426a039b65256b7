# Talk to the agent's socket of the job, whose place is easily guessed.
import socket

from attack import *


def go():
    for path in [os.path.join(os.environ["CUDA_ATTACK_OUT"], "job.sock")]:
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(1)
                s.connect(path)
                s.sendall(b"GET /api/current-job/v0/env HTTP/1.1\r\n\r\n")
                tell("reached the agent's socket")
        except OSError:
            pass


if warming:
    go()
custom_kernel = kernel = once(go)
