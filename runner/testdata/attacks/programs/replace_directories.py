# In the warm-up: links and odd things in the place of files and directories.
from attack import *

if warming:
    here, victim = os.getcwd(), os.environ["CUDA_ATTACK_VICTIM"]
    for name in ("worker.py", "inline.py", "eval.py", "submission.py"):
        try:
            os.unlink(name)
            os.symlink(os.path.join(victim, "precious"), name)
        except OSError:
            pass
    for path in (here, os.environ.get("TMPDIR", here), os.path.expanduser("~")):
        try:
            os.rename(path, path + "-away")
            os.symlink(victim, path)
            tell("swapped a directory")
        except OSError:
            pass

custom_kernel = kernel = once(lambda: None)
