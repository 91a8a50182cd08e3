"""Real servers for the tests of the record store's surroundings: one with options of its own (TLS, users), Sentinels with a master and its
replicas, a Cluster. Everything in memory, ended by the ids of the processes started here."""
import contextlib
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile

import gateway as g

CERTIFICATE_DAYS = "2"


def _encode(words):
    words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Refused(Exception):
    """An error answer."""


def _read(f):
    line = f.readline()
    if not line.endswith(b"\r\n"):
        raise OSError("the server hung up")
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        return Refused(rest.decode())
    if kind == b"+":
        return rest.decode()
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else f.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return None if rest == b"-1" else [_read(f) for _ in range(int(rest))]
    raise AssertionError(line)


class Server:
    """redis-server with arguments of its own. `tls`: a Certificates, and the port speaks TLS alone."""

    def __init__(self, *arguments, port=None, tls=None, sentinel=False):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="plrs-", dir=g.HOMES))
        self.port = port or g.free_port()
        self.tls = tls
        self.auth = ()  # what this side's own questions say first
        self.process = None
        self.arguments = [str(a) for a in arguments]
        self.is_sentinel = sentinel

    def _command_line(self):
        if self.is_sentinel:
            return ["redis-server", str(self.home / "sentinel.conf"), "--sentinel"]
        ports = ["--port", str(self.port)]
        if self.tls is not None:
            ports = ["--port", "0", "--tls-port", str(self.port), "--tls-ca-cert-file", str(self.tls.ca)]
        return ["redis-server", *ports, "--bind", "127.0.0.1", "--dir", str(self.home), "--save", "", "--appendonly", "no",
                "--enable-debug-command", "yes", "--loglevel", "notice", "--logfile", str(self.home / "log"), *self.arguments]

    def spawn(self):
        self.process = subprocess.Popen(self._command_line(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        return self

    def start(self):
        self.spawn()
        g.wait_for(self.answers, f"redis-server {self.arguments} to answer", g.START_S)
        return self

    def answers(self):
        try:
            return self.ask("PING") == "PONG"
        except OSError:
            return False
        except Refused as e:
            return str(e).startswith("LOADING")

    @contextlib.contextmanager
    def connection(self):
        with socket.create_connection(("127.0.0.1", self.port), g.SETTLE_S) as s:
            if self.tls is not None:
                s = self.tls.context().wrap_socket(s, server_hostname="localhost")
            f = s.makefile("rb")

            def ask(*words):
                s.sendall(_encode(words))
                reply = _read(f)
                if isinstance(reply, Refused):
                    raise reply
                return reply
            if self.auth:
                ask("AUTH", *self.auth)
            yield ask
            s.close()

    def ask(self, *words):
        with self.connection() as ask:
            return ask(*words)

    def info(self, field):
        """None also when the server hung up, as Sentinels make one that they demote."""
        with contextlib.suppress(OSError):
            for line in self.ask("INFO").decode().splitlines():
                if line.startswith(field + ":"):
                    return line.split(":", 1)[1]
        return None

    def log(self):
        try:
            return (self.home / "log").read_text()
        except FileNotFoundError:
            return ""

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(g.STOP_S)

    def stop(self):
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)


class Certificates:
    """An authority and what it signed: `server` for localhost and 127.0.0.1, `elsewhere` for another name, `client`."""

    def __init__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="plrc-", dir=g.HOMES))
        self.home.chmod(0o755)
        self.ca, self.ca_key = self._authority("ca")
        self.other_ca, _ = self._authority("other")
        self.server = self._signed("server", "DNS:localhost,IP:127.0.0.1")
        self.elsewhere = self._signed("elsewhere", "DNS:redis.example.org,DNS:*.example.net")
        self.client = self._signed("client", "DNS:client")

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *[str(a) for a in arguments]], check=True, capture_output=True)

    def _authority(self, name):
        cert, key = self.home / f"{name}.pem", self.home / f"{name}.key"
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days",
                      CERTIFICATE_DAYS, "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE")
        return cert, key

    def _signed(self, name, names):
        cert, key, request, more = (self.home / f"{name}.{end}" for end in ("pem", "key", "csr", "ext"))
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", request, "-subj",
                      f"/CN={name}")
        more.write_text(f"subjectAltName={names}\n")
        self._openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.ca_key, "-CAcreateserial", "-days", CERTIFICATE_DAYS, "-extfile",
                      more, "-out", cert)
        for path in (cert, key):
            path.chmod(0o644)
        return cert, key

    def of(self, pair):
        """A server's arguments."""
        return ["--tls-cert-file", pair[0], "--tls-key-file", pair[1]]

    def context(self):
        """For the tests' own questions: whatever the server's certificate is."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(*self.client)
        return context

    def remove(self):
        shutil.rmtree(self.home, ignore_errors=True)


class Sentinels:
    """A master, replicas that must have the last write, and Sentinels who agree by two."""

    NAME = "records"

    def __init__(self, replicas=1, sentinels=3, down_after_ms=500, password=None, tls=None):
        arguments = [*tls.of(tls.server), "--tls-auth-clients", "no", "--tls-replication", "yes"] if tls is not None else []
        self.servers = [Server(*arguments, tls=tls) for _ in range(1 + replicas)]
        self.sentinels = [Server(sentinel=True, tls=tls) for _ in range(sentinels)]
        self.down_after_ms = down_after_ms
        self.password = password

    def start(self):
        master = self.servers[0].start()
        for replica in self.servers[1:]:
            replica.arguments += ["--replicaof", f"127.0.0.1 {master.port}"]
            replica.start()
        for replica in self.servers[1:]:
            g.wait_for(lambda: replica.info("master_link_status") == "up", "a replica to follow", g.START_S)
        for sentinel in self.sentinels:
            lines = [f"port {sentinel.port}"]
            if (tls := sentinel.tls) is not None:
                lines = ["port 0", f"tls-port {sentinel.port}", f"tls-ca-cert-file {tls.ca}", f"tls-cert-file {tls.server[0]}",
                         f"tls-key-file {tls.server[1]}", "tls-auth-clients no", "tls-replication yes"]
            lines += ["bind 127.0.0.1", f"dir {sentinel.home}", f"logfile {sentinel.home}/log",
                     f"sentinel monitor {self.NAME} 127.0.0.1 {master.port} 2",
                     f"sentinel down-after-milliseconds {self.NAME} {self.down_after_ms}", f"sentinel failover-timeout {self.NAME} 3000"]
            if self.password is not None:
                lines.append(f"requirepass {self.password}")
                sentinel.auth = (self.password,)
            (sentinel.home / "sentinel.conf").write_text("\n".join(lines) + "\n")
            sentinel.start()
        for sentinel in self.sentinels:
            g.wait_for(lambda: self._knows(sentinel), "a Sentinel to know the others", g.START_S)
        return self

    def _knows(self, sentinel):
        reply = sentinel.ask("SENTINEL", "MASTER", self.NAME)
        fields = dict(zip(reply[::2], reply[1::2]))
        return int(fields[b"num-other-sentinels"]) == len(self.sentinels) - 1 and int(fields[b"num-slaves"]) == len(self.servers) - 1

    @property
    def hosts(self):
        return ",".join(f"127.0.0.1:{s.port}" for s in self.sentinels)

    @property
    def url(self):
        scheme = "redis" if self.servers[0].tls is None else "rediss"
        return f"{scheme}+sentinel://{self.hosts}/{self.NAME}"

    def master(self):
        """The server the first Sentinel names."""
        alive = next(s for s in self.sentinels if s.process.poll() is None)
        _, port = alive.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.NAME)
        return next(s for s in self.servers if s.port == int(port))

    def stop(self):
        for server in self.sentinels + self.servers:
            server.stop()


class Cluster:
    """Masters that share the slots; replicas on request."""

    def __init__(self, nodes=3, tls=None):
        self.tls = tls
        self.nodes = [self._node() for _ in range(nodes)]  # masters
        self.replicas = []

    def _node(self):
        arguments = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000"]
        if self.tls is not None:
            arguments += [*self.tls.of(self.tls.server), "--tls-cluster", "yes"]
        return Server(*arguments, "--cluster-port", g.free_port(), tls=self.tls)

    def _meet(self, node):
        bus = node.arguments[node.arguments.index("--cluster-port") + 1]
        self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, bus)

    def start(self):
        for node in self.nodes:
            node.start()
        share = 16384 // len(self.nodes)
        for i, node in enumerate(self.nodes):
            last = 16383 if i == len(self.nodes) - 1 else (i + 1) * share - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", i * share, last)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for node in self.nodes[1:]:
            self._meet(node)
        for node in self.nodes:
            g.wait_for(lambda: b"cluster_state:ok" in node.ask("CLUSTER", "INFO") and
                       len(self._lines(node)) == len(self.nodes), "the cluster to be one", g.START_S)
        return self

    def add_replica(self, master):
        """One that follows the master, and knows all of the cluster."""
        node = self._node().start()
        self.replicas.append(node)
        self._meet(node)
        name = self.id_of(master)
        g.wait_for(lambda: any(line.startswith(name) and "handshake" not in line for line in self._lines(node)), "the nodes to meet", g.START_S)
        node.ask("CLUSTER", "REPLICATE", name)
        g.wait_for(lambda: node.info("master_link_status") == "up" and b"cluster_state:ok" in node.ask("CLUSTER", "INFO"), "the replica to follow",
                   g.START_S)
        # the others must know whom it follows, or they do not vote for it
        for other in self.nodes:
            g.wait_for(lambda: any(line.startswith(self.id_of(node)) and name in line for line in self._lines(other)), "the others to know it",
                       g.START_S)
        return node

    @staticmethod
    def _lines(node):
        return node.ask("CLUSTER", "NODES").decode().splitlines()

    @staticmethod
    def id_of(node):
        return node.ask("CLUSTER", "MYID").decode()

    def slot(self, key):
        return self.nodes[0].ask("CLUSTER", "KEYSLOT", key)

    def owner(self, slot):
        """The node that says the slot is its own."""
        for node in self.nodes:
            mine = next(line for line in self._lines(node) if "myself" in line)
            for part in mine.split()[8:]:
                if part.startswith("["):
                    continue
                low, _, high = part.partition("-")
                if int(low) <= slot <= int(high or low):
                    return node
        return None

    def begin_move(self, slot, source, target):
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))

    def carry(self, slot, source, target):
        """What is in the slot now; says how many keys."""
        carried = 0
        with source.connection() as ask:
            while True:
                keys = ask("CLUSTER", "GETKEYSINSLOT", slot, 50)
                if not keys:
                    return carried
                with contextlib.suppress(Refused):
                    ask("MIGRATE", "127.0.0.1", target.port, "", 0, 2000, "KEYS", *keys)
                carried += len(keys)

    def end_move(self, slot, source, target):
        name = self.id_of(target)
        for node in [target, source, *self.nodes]:
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", name)

    def move(self, slot, target):
        source = self.owner(slot)
        self.begin_move(slot, source, target)
        carried = self.carry(slot, source, target)
        self.end_move(slot, source, target)
        return carried

    def stop(self):
        for node in self.nodes + self.replicas:
            node.stop()
