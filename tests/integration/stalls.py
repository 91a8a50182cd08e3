"""How late this machine lets a waiting process run: what a bound in milliseconds cannot be held against the gateway."""
import threading
import time


class Stalls:
    """The worst delay seen within the block."""

    def __enter__(self):
        self.worst, self.over = 0.0, threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()
        return self

    def _look(self):
        while not self.over.is_set():
            began = time.monotonic()
            time.sleep(0.002)
            self.worst = max(self.worst, time.monotonic() - began - 0.002)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
