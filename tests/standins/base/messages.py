"""Messages between a stand-in, the nursery and a box: JSON over a SEQPACKET socket, with descriptors; a long one travels in a memory file."""
import json
import os
import socket

MESSAGE_MAX = 128 * 1024
FDS_MAX = 8


def send(sock, value, fds=()):
    data = json.dumps(value, ensure_ascii=True).encode()
    if len(data) > MESSAGE_MAX:
        memory = os.memfd_create("message")
        with os.fdopen(os.dup(memory), "wb") as f:
            f.write(data)
        try:
            socket.send_fds(sock, [b'{"in_memory":true}'], [memory, *fds])
        finally:
            os.close(memory)
    else:
        socket.send_fds(sock, [data], list(fds))


def receive(sock):
    """(value, fds), or None at the end."""
    data, fds, _, _ = socket.recv_fds(sock, MESSAGE_MAX + 1024, FDS_MAX)
    if not data:
        return None
    for fd in fds:
        os.set_inheritable(fd, False)
    value = json.loads(data)
    if value.get("in_memory") is True:
        with os.fdopen(fds.pop(0), "rb") as f:
            f.seek(0)
            value = json.load(f)
    return value, fds
