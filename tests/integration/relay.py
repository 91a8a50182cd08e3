"""Relays on loopback between the gateway and a Redis; what a relay does to the answers is its class's to say."""
import contextlib
import socket
import threading
import time


class Relay:
    """Passes bytes on as they are. `server` is anything with a port."""

    def __init__(self, server):
        self.server, self.sockets = server, []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.server.port))
            except OSError:
                return
            for s in (near, far):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets += [near, far]
            threading.Thread(target=self._pass, args=(near, far, None), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, self.answer), daemon=True).start()

    def answer(self, data):
        """What of an answer's bytes goes on, and whether the connection does."""
        return data, True

    def send(self, target, data):
        target.sendall(data)

    def _pass(self, source, target, change):
        with contextlib.suppress(OSError):
            goes_on = True
            while goes_on and (data := source.recv(65536)):
                if change is not None:
                    data, goes_on = change(data)
                self.send(target, data)
        for s in (source, target):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def stop(self):
        self.listener.close()
        for s in self.sockets:
            s.close()


class Slow(Relay):
    """Each answer `delay` seconds later, and at most `piece` bytes at a time."""

    def __init__(self, server, piece=65536):
        self.piece, self.delay = piece, 0.0
        super().__init__(server)

    def answer(self, data):
        time.sleep(self.delay)
        return data, True

    def send(self, target, data):
        for at in range(0, len(data), self.piece):
            target.sendall(data[at:at + self.piece])
