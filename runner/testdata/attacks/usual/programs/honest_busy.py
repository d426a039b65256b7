# Prints, has threads and a child, talks to itself over loopback, keeps state.
import os
import socket
import subprocess
import sys
import threading
from array import array

from task import input_t, output_t

server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
calls = []
print("loaded", subprocess.run([sys.executable, "-c", "print(6*7)"], capture_output=True, text=True).stdout.strip())


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    calls.append(len(a))
    client.sendall(b"x")
    assert peer.recv(1) == b"x"
    out = array("f", bytes(4 * len(a)))

    def half(first):
        for i in range(first, len(a), 2):
            out[i] = a[i] + b[i]

    threads = [threading.Thread(target=half, args=(n,)) for n in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    with open(os.path.join(os.environ["TMPDIR"], "state"), "a") as file:
        file.write("x")
    print("call", len(calls), flush=True)
    return out
