# An ordinary user may set the limits of all his processes: kbrun's, so that it
# writes no result, and those of what counts the memory.
import resource

from attack import *


def go():
    for pid in {1, runner(), os.getppid(), *ancestors()} - {0}:
        for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
            try:
                resource.prlimit(pid, limit, (0, 0))
                tell("limited", pid)
            except (OSError, ValueError):
                pass


if warming:
    go()
custom_kernel = kernel = once(go)
