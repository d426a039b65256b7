# Leave things for the next job wherever a build or an interpreter may look.
from attack import *


def go():
    name = "kbattack-" + os.environ["CUDA_ATTACK_MARK"]
    work = os.path.dirname(os.path.abspath(os.environ.get("TMPDIR", ".")))
    for place in ("/tmp", "/var/tmp", "/usr/local/lib", "/etc", os.path.dirname(work), os.path.dirname(os.path.dirname(work)),
                  os.environ["CUDA_ATTACK_OUT"], "/root", "/run", "/var/cache"):
        try:
            with open(os.path.join(place, name), "w") as file:
                file.write("poisoned")
            tell("left something in", place)
        except OSError:
            pass
    for place in (os.path.expanduser("~"), os.environ.get("TMPDIR", ".")):
        os.makedirs(os.path.join(place, ".triton", "cache"), exist_ok=True)
        with open(os.path.join(place, ".triton", "cache", name), "w") as file:
            file.write("poisoned")


if warming:
    go()
custom_kernel = kernel = once(go)
