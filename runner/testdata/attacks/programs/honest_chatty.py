# Prints a lot, in odd bytes, and reads what every program may read.
import os
import subprocess
import tempfile

from attack import right

os.write(1, b"caf\xc3\xa9 \xff\x00\x1b[31m\n" * 2000)
subprocess.run(["true"], check=True)
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x" * 100000)
os.makedirs(os.path.expanduser("~/.cache/kernels"), exist_ok=True)
kernel = right
