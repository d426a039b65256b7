"""Prints what a job can see and do in an agent's container."""

import glob
import json
import os
import socket
import stat

# The token, backwards: whoever searches for it must not find it here.
token = os.environ["BACKWARDS"][::-1].encode()


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read(1 << 22)
    except OSError:
        return b""


def holders():
    """Files that this user can read and that hold the token."""
    found = []
    for top in ("/run", "/builds", "/tmp", "/etc", "/dev/shm", "/var", "/root", "/home"):
        for at, _, files in os.walk(top):
            for name in files:
                path = os.path.join(at, name)
                if stat.S_ISREG(os.lstat(path).st_mode) and token in read(path):
                    found.append(path)
    for process in glob.glob("/proc/[0-9]*"):
        for name in ("environ", "cmdline"):
            if token in read(process + "/" + name):
                found.append(process + "/" + name)
        for path in glob.glob(process + "/fd/*"):
            try:
                if stat.S_ISREG(os.stat(path).st_mode) and token in read(path):
                    found.append(path)
            except OSError:
                pass
    return found


def own_files():
    """Open files that this process was left: more than stdin, stdout, stderr."""
    return sorted(os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd") if int(n) > 2 and os.path.exists("/proc/self/fd/" + n))


def agents():
    """Processes of buildkite-agent by user, and whether their memory can be read."""
    found = []
    for process in glob.glob("/proc/[0-9]*"):
        line = read(process + "/cmdline").split(b"\0")
        if len(line) > 1 and line[0].endswith(b"buildkite-agent"):
            try:
                open(process + "/mem", "rb").close()
                readable = True
            except OSError:
                readable = False
            found.append({"Does": line[1].decode(), "User": os.stat(process).st_uid, "Readable": readable})
    return found


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
    return sorted(found)


def connects(path):
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(path)
            return True
        except OSError:
            return False


def writable():
    """Mounts in which a file can be made."""
    found = []
    for line in open("/proc/self/mountinfo"):
        at = line.split()[4]
        if at.startswith(("/proc", "/sys")) or not os.path.isdir(at):
            continue
        path = os.path.join(at, "written")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            os.unlink(path)
            found.append(at)
        except OSError:
            pass
    return sorted(found)


def processes(limit):
    """How many processes can be started."""
    children = []
    try:
        while len(children) < limit:
            pid = os.fork()
            if pid == 0:
                os.read(hold[0], 1)
                os._exit(0)
            children.append(pid)
    except OSError:
        pass
    for _ in children:
        os.write(hold[1], b"x")
    for pid in children:
        os.waitpid(pid, 0)
    return len(children)


def executes(directory):
    path = os.path.join(directory, "program")
    with open(path, "w") as f:
        f.write("#!/bin/sh\nexit 0\n")
    os.chmod(path, 0o700)
    return os.spawnv(os.P_WAIT, path, [path]) == 0


left = sorted(p for p in ("/builds/left-behind", "/tmp/left-behind", "/dev/shm/left-behind") if os.path.exists(p))
seen = {
    "Left": left,
    "Holders": holders(),
    "Open": own_files(),
    "Agents": agents(),
    "Sockets": sockets(),
    "Broker": connects("/run/kbnode/secretd.sock"),
    "Writable": writable(),
    "Executes": [executes("/builds"), executes("/tmp")],
    "Environ": sorted(os.environ),
    "User": os.getuid(),
    "Groups": os.getgroups(),
    "Status": dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if line.startswith(("Cap", "NoNewPrivs"))),
}
# The search finds what there is to find.
with open("/tmp/planted", "wb") as f:
    f.write(token)
seen["Planted"] = holders()
os.unlink("/tmp/planted")
for path in ("/builds/left-behind", "/tmp/left-behind", "/dev/shm/left-behind"):
    open(path, "w").close()
hold = os.pipe()
seen["Processes"] = processes(int(os.environ["PROCESSES"]))
print("SEEN " + json.dumps(seen), flush=True)
