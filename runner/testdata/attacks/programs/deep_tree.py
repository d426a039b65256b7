# What is hard to remove: deep, many, without permissions, with odd names.
from attack import *


def go():
    os.umask(0o777)
    base = os.environ.get("TMPDIR", ".")
    os.makedirs(os.path.join(base, "closed", "inner"), mode=0o700, exist_ok=True)
    top = os.open(base, os.O_RDONLY)
    for name in (b"new\nline", b"\xff\xfe", b"-rf", b" ", b"e" * 255):
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o000, dir_fd=top))
    os.chmod(os.path.join(base, "closed"), 0o700)
    for i in range(300):
        open(os.path.join(base, "closed", str(i)), "w").close()
    fd = top
    os.umask(0)
    for _ in range(1500):
        os.mkdir("d" * 20, 0o700, dir_fd=fd)
        fd, old = os.open("d" * 20, os.O_RDONLY, dir_fd=fd), fd
        os.close(old)
    os.umask(0o777)
    os.chmod(os.path.join(base, "closed"), 0)
    for path in (base, os.path.expanduser("~"), "."):
        try:
            os.chmod(path, 0)
        except OSError:
            pass


custom_kernel = kernel = once(go)
