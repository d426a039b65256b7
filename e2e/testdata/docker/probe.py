"""Prints what a submission can see and do."""

import glob
import json
import os
import socket
import stat
import subprocess
import tempfile


def status(*names):
    lines = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    return {name: lines.get(name, "") for name in names}


def environs():
    """Processes whose environment can be read and has the payload."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            if b"KERNELBOT_PAYLOAD=" in open(path, "rb").read():
                found.append(path)
        except OSError:
            pass
    return sorted(found)


def sockets():
    found = []
    for top, dirs, files in os.walk("/"):
        if top == "/":
            dirs[:] = [d for d in dirs if d not in ("proc", "sys", "dev")]
        for name in files:
            path = os.path.join(top, name)
            try:
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    found.append(path)
            except OSError:
                pass
    return found


def executes(directory):
    """Whether a program that is written into directory can be run."""
    path = os.path.join(directory, "program")
    try:
        with open(path, "w") as f:
            f.write("#!/bin/sh\nexit 0\n")
        os.chmod(path, 0o700)
        return subprocess.run([path]).returncode == 0
    except OSError:
        return False


def network():
    try:
        socket.create_connection(("169.254.169.254", 80), 0.5).close()
        return True
    except OSError:
        return False


def custom_kernel(n):
    if n == 1:
        seen = {
            "environ": sorted(os.environ),
            "payloads": environs(),
            "sockets": sockets(),
            "interfaces": [name for _, name in socket.if_nameindex()],
            "network": network(),
            "executes": executes(tempfile.mkdtemp()),
            "uid": os.getuid(),
            "status": status("CapEff", "CapBnd", "NoNewPrivs", "Seccomp"),
        }
        print("PROBE " + json.dumps(seen), flush=True)
    return n
