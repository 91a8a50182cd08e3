"""What a Python guest does with the system: threads, processes, files, local sockets, signals, the usual modules."""
import asyncio
import concurrent.futures
import ctypes
import fcntl
import hashlib
import json
import mmap
import multiprocessing
import os
import resource
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time


def square(x):
    return x * x


async def child():
    p = await asyncio.create_subprocess_exec("sh", "-c", "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    out, _ = await p.communicate(b"asked")
    assert out == b"asked"
    await asyncio.wait_for(asyncio.sleep(0.01), 1)
    await asyncio.to_thread(time.sleep, 0.01)


def main():
    with tempfile.TemporaryDirectory(dir="/work") as d:
        os.chdir(d)
        with open("f", "w+b") as f:
            f.write(b"x" * 5000)
            f.flush()
            os.fsync(f.fileno())
            fcntl.flock(f, fcntl.LOCK_EX)
            fcntl.lockf(f, fcntl.LOCK_UN)
            with mmap.mmap(f.fileno(), 4096) as m:
                m[0] = 1
                m.flush()
            f.truncate(10)
            os.posix_fallocate(f.fileno(), 0, 100)
        os.makedirs("a/b")
        shutil.copytree("a", "c")
        shutil.copy2("f", "g")
        os.symlink("f", "l")
        os.link("f", "h")
        os.mkfifo("fifo")
        os.utime("f", (1, 2))
        os.chmod("f", 0o600)
        list(os.scandir("."))
        shutil.rmtree("c")
        with sqlite3.connect("db") as db:
            db.execute("create table t (x)")
            db.execute("insert into t values (1)")
        db.close()
        results = []
        threads = [threading.Thread(target=lambda: results.append(1)) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert list(pool.map(square, range(4))) == [0, 1, 4, 9]
        with multiprocessing.Pool(2) as pool:
            assert pool.map(square, range(4)) == [0, 1, 4, 9]
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            assert pool.submit(square, 3).result() == 9
        assert subprocess.run(["sh", "-c", "echo $0", "x"], capture_output=True, text=True, start_new_session=True).stdout == "x\n"
        try:
            subprocess.run(["sleep", "60"], timeout=0.05)
        except subprocess.TimeoutExpired:
            pass
        pid = os.fork()
        if pid == 0:
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
        server = socket.socket(socket.AF_UNIX)
        server.bind("s")
        server.listen()
        client = socket.socket(socket.AF_UNIX)
        client.connect("s")
        peer, _ = server.accept()
        socket.send_fds(client, [b"x"], [0])
        socket.recv_fds(peer, 1, 1)
        a, b = socket.socketpair()
        a.send(b"1")
        select.select([b], [], [], 1)
        poller = select.epoll()
        poller.register(b, select.EPOLLIN)
        poller.poll(1)
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        signal.pause()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.sigtimedwait([signal.SIGUSR1], 1)
        asyncio.run(child())
        resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.sched_getaffinity(0)
        os.nice(1)
        os.getloadavg()
        os.uname()
        os.statvfs(".")
        os.urandom(8)
        ctypes.CDLL(None).getpid()
        hashlib.scrypt(b"a", salt=b"b", n=2, r=1, p=1)
        json.loads(json.dumps({"x": [1.5]}))
        bytearray(50_000_000)
        os.chdir("/")
    print("threads.py: done", sys.version_info[:2])


if __name__ == "__main__":
    main()
