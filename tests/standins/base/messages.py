"""Messages between a stand-in, the nursery and a box: JSON over a SEQPACKET socket, with descriptors; a long one travels in a memory file."""
import json
import os
import select
import signal
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


class Orders:
    """The messages of a socket in turn until its end, for a process with children: `reap` is called when one of them may have ended."""

    def __init__(self, sock, reap):
        self.sock, self.reap = sock, reap
        self.wake, wake = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)

    def __iter__(self):
        while True:
            ready, _, _ = select.select([self.sock, self.wake], [], [])
            if self.wake in ready:
                try:
                    os.read(self.wake, 4096)
                except BlockingIOError:
                    pass
                self.reap()
            if self.sock in ready:
                asked = receive(self.sock)
                if asked is None:
                    return
                yield asked
