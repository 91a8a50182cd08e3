"""What a series of trials runs on: one Redis that keeps its data, and copies of the gateway that share it, with the stand-in wall. Anything here
may be killed at any time and started again."""
import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))

import gateway as g  # noqa: E402
import resp  # noqa: E402

LEASE_MARGIN_S = 15   # STORE_LIFE_MARGIN_MS; the lease of a run of TIMEOUT_S is its life, and renewed by as much
TIMEOUT_S = 1         # of every run here
SWEEP_S = 10          # within which what a dead copy left is settled by another, after its lease
LEASE_S = TIMEOUT_S + LEASE_MARGIN_S
OUTLIVE_S = 5         # within which the other processes end when their parent was killed
PAUSE_MS_MAX = 500    # a role that would be started again later than this: its gateway is started anew instead

# Where a run passes, by the process that does; the rest of the sources' points stand at starts and proofs.
RUN_POINTS = re.compile(r"run\.|backend\.|spool\.|ledger\.|store\.|paid\.")
BEHIND_REDIS = ("spool.", "store.")  # reached only while Redis does not take settlements
OF_THE_PAID = ("ledger.", "paid.")   # reached only by a run on the wall that bills
WALL, PAID_WALL = "plimsolld-backend-standin", "plimsolld-backend-standinpaid"
CLEAN_S = 40  # within which the janitors have deleted everything: a dead copy's entries are adopted when its lease (15 s) has run out


def fault_points():
    """Those named in the sources, on the run's path."""
    found = set()
    for folder in ("core", "records", "backends", "gateway", "loadtest"):
        for path in (ROOT / folder).rglob("*.c"):
            text = path.read_text(errors="replace")
            if "fault_point" in text:
                found.update(re.findall(r'fault_point\(\s*"([a-z0-9_.]+)"\)', text))
                for table in re.findall(r"points\[[A-Z_]*\] = \{([^}]*)\}", text):
                    found.update(re.findall(r'"([a-z0-9_.]+)"', table))
    return sorted(p for p in found if RUN_POINTS.match(p))


# What a front's lanes still wait for when they drain (gateway/front.c).
LANE_FIELDS = ("runs", "lingering", "gates", "joined", "store->settling", "store->spool.ahead", "store->spool.under_way", "store->retry.count",
               "store->retry.withdrawals", "store->silent", "store->links_up")


def stacks_of(pid):
    asked = ["thread apply all bt 30", *(f"p front_main::front.lanes[{lane}].{name}" for lane in (0, 1) for name in LANE_FIELDS),
             *(f"p *front_main::front.lanes[{lane}].gates" for lane in (0, 1))]
    try:
        done = subprocess.run(["gdb", "-p", str(pid), "-batch", *(word for a in asked for word in ("-ex", a))], capture_output=True, text=True,
                              timeout=60)
        return "\n".join(line[:600] for line in done.stdout.splitlines() if line.startswith(("#", "Thread", "$")))
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"no stacks: {e}"


class Redis:
    """A redis-server whose data outlive it."""

    def __init__(self, home):
        self.home = home
        self.port = self.where = g.free_port()
        self.process = None

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.home), "--save", "", "--appendonly", "yes",
             "--appendfsync", "always", "--maxmemory-policy", "noeviction", "--loglevel", "warning"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        g.wait_for(self.answers, "redis-server to answer", g.START_S)
        return self

    def answers(self):
        with contextlib.suppress(OSError, resp.ReplyError):
            with resp.Client(self.port, 5) as c:
                return c("PING") == "PONG"
        return False

    def kill(self):
        self.process.kill()
        self.process.wait(g.STOP_S)

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def restore(self):
        if self.process.poll() is not None:
            self.start()
        self.thaw()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.thaw()
            self.kill()


class PrivateRedis:
    """The one that a gateway starts for itself when it is told of none, and starts again when it dies."""

    url = None

    def __init__(self):
        self.copy = None

    @property
    def where(self):
        return str(self.copy.gw.state / "run/redis.sock")

    def start(self):
        return self

    def _signal(self, number):
        pid = self.copy.pid_of("redis-server")
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self):
        self._signal(signal.SIGKILL)

    def freeze(self):
        self._signal(signal.SIGSTOP)

    def thaw(self):
        self._signal(signal.SIGCONT)

    restore = thaw

    def stop(self):
        self.thaw()


class Copy:
    """One gateway, its log of dispatches, and how it is killed."""

    def __init__(self, redis, token=None, **settings):
        self.gw = g.Gateway({"SANDBOX_PROVIDER": "standin,standinpaid", "PLIMSOLL_REDIS_URL": redis.url, "SANDBOX_MAX_CONCURRENT": "32",
                             "SANDBOX_PER_KEY_CONCURRENT": "32", "PLIMSOLL_THREADS": "2", **settings})
        if token is not None:
            self.gw.settings["PLIMSOLL_TOKEN"] = self.gw.token = token
        self.log_read = 0
        self.dispatches = self.gw.home / "dispatches"
        self.gw.settings["PLIMSOLL_STANDIN_LOG"] = str(self.dispatches)
        self.dispatches.touch()
        self.dispatches.chmod(0o666)

    def start(self):
        self.gw.start()
        return self

    def lines(self):
        return self.dispatches.read_text().splitlines()

    def pid_of(self, role):
        if self.gw.process is None:
            return None
        return next((p for p in g.descendants(self.gw.process.pid) if g.name_of(p).split(" ")[0].split("/")[-1] == role), None)

    def kill_role(self, role):
        pid = self.pid_of(role)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pid

    def kill_whole(self):
        """Every process of it at the same moment."""
        everyone = [self.gw.process.pid, *g.descendants(self.gw.process.pid)]
        for pid in everyone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.gw.process.wait(g.STOP_S)

    def kill_parent(self):
        """The parent alone; the others have to notice."""
        self.gw.process.kill()
        self.gw.process.wait(g.STOP_S)

    def stop_cleanly(self):
        """SIGTERM: runs end, records are written, nothing is left to a lease."""
        self.gw.signal(signal.SIGTERM)
        status = self.gw.process.wait(g.STOP_S)
        assert status == 0, f"SIGTERM ended it with {status}"

    def is_up(self):
        return self.gw.process is not None and self.gw.process.poll() is None

    def is_ready(self):
        try:
            return self.gw.get("/readyz").status == 200
        except (OSError, g.Closed):
            return False

    def look_for_findings(self):
        """A sanitizer's word since the last look: the process that said it has ended, as if it had been killed."""
        with open(self.gw.log_path, "rb") as log:
            log.seek(self.log_read)
            text = log.read()
        self.log_read += len(text)
        found = [line[:600] for line in text.decode("utf-8", "replace").splitlines() if any(f in line for f in g.FINDINGS)]
        assert not found, "a sanitizer found something:\n" + "\n".join(found[:8])

    def end_of_processes(self):
        """All of them end soon after their parent; where one stands that did not is kept."""
        session = self.gw.process.pid

        def left():
            return {p for p, s in g._processes().items() if s[2] == session and s[4] != "Z"}
        end = time.monotonic() + OUTLIVE_S
        while left() and time.monotonic() < end:
            time.sleep(0.02)
        stacks = {f"{g.name_of(p)} {p}": stacks_of(p) for p in left()}
        self.gw._left_over(session, {})
        assert not stacks, "processes outlived their gateway:\n" + "\n".join(f"--- {name}\n{text}" for name, text in stacks.items())

    def restore(self):
        """Up and ready again, whatever was killed of it."""
        self.look_for_findings()
        for name in list(self.gw.faults.folder.iterdir()):
            name.unlink(missing_ok=True)
        died = self.gw.log_lines("process died")
        if self.is_up() and died and died[-1].get("restart_in_ms", 0) > PAUSE_MS_MAX:
            self.kill_whole()
        if not self.is_up():
            self.end_of_processes()
            self.gw.start()
        g.wait_for(self.is_ready, "the copy to be ready again", g.START_S)

    def end(self):
        self.gw.stop()

    def discard(self):
        self.gw.kill_rest()
        self.gw.remove()


class Rig:
    def __init__(self, copies=2, prices=None, private=False, **settings):
        """`private`: one copy with a Redis of its own."""
        copies = 1 if private else copies
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="plc-", dir=g.HOMES))
        self.home.chmod(0o755)
        self.redis = PrivateRedis() if private else Redis(self.home).start()
        self.account = self.home / "account"  # what exists at the provider that bills
        self.account.mkdir()
        self.account.chmod(0o777)
        if prices is not None:
            path = self.home / "prices.json"
            path.write_text(json.dumps({**prices, "date": datetime.date.today().isoformat()}))
            settings["PLIMSOLL_PRICES_FILE"] = str(path)
        settings = {"PLIMSOLL_STANDINPAID_DIR": str(self.account), "PLIMSOLL_STANDINPAID": "unseen=1500,attempt=300", **settings}
        self.copies = []
        for _ in range(copies):
            token = self.copies[0].gw.token if self.copies else None
            self.copies.append(Copy(self.redis, token, **settings))
        if private:
            self.redis.copy = self.copies[0]
        starts = [threading.Thread(target=c.start) for c in self.copies]
        for t in starts:
            t.start()
        for t in starts:
            t.join()
        for c in self.copies:
            g.wait_for(c.is_ready, "a copy to be ready", g.START_S)

    def restore(self):
        self.redis.restore()
        for c in self.copies:
            c.restore()

    def client(self):
        return resp.Client(self.redis.where)

    def lines(self):
        return [line for c in self.copies for line in c.lines()]

    def run_record(self, run_id):
        """GET /v1/runs/ID; None when there is none."""
        answer = self.copies[0].gw.get("/v1/runs/" + run_id)
        if answer.status == 200:
            return answer.json()
        assert answer.status == 404, answer
        return None

    def now_ms(self, client):
        seconds, micros = client("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def slots(self, client):
        """{run id: end of its lease} over all keys that hold slots."""
        held = {}
        for key in client.keys("plimsoll:*slots"):
            members = client("ZRANGE", key, 0, -1, "WITHSCORES")
            held.update({m.decode().split(":")[-1]: float(s) for m, s in zip(members[::2], members[1::2])})
        return held

    def leaks(self):
        """Sandboxes at the provider, and what the ledger still holds."""
        with self.client() as client:
            held = {key: client("HLEN", key) for key in client.keys("plimsoll:*:ledger:*") if client("TYPE", key) == "hash"}
        return sorted(p.name for p in self.account.iterdir()), {k: n for k, n in held.items() if n}

    def end(self):
        problems = []
        for c in self.copies:
            try:
                c.end()
            except AssertionError as e:
                found = [line[:600] for line in c.gw.log().splitlines() if any(f in line for f in g.FINDINGS)]
                problems.append("\n".join([*found[:8], str(e)[:1500]]))
        assert not problems, "\n".join(problems)

    def discard(self):
        for c in self.copies:
            c.discard()
        self.redis.stop()
        shutil.rmtree(self.home, ignore_errors=True)
