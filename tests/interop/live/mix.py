"""A cluster whose processes are of either implementation: three storage nodes s1 to s3, servers h1 and h2, a
ZooKeeper.

Each process has one configuration file and one directory, which both implementations read, so a process is
exchanged by ending it and starting the other implementation in its place. Processes are ended by their own
id, all of them at the end.
"""

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.cli.blocks import Block
from tests.integration.processes import SERVER, STORAGE, WALTZ
from tests.interop.live.loops import run
from tests.interop.live.release import Release
from tests.interop.live.segments import Entry, read_partition
from waltz_protocol.types import Endpoint
from waltz_runtime.ports import LOOPBACK, is_free
from waltz_testkit.ports import free_ports
from waltz_testkit.zookeeper import EmbeddedZooKeeper
from waltz_tools.local.configs import CLUSTER_NAME, common_keys, write_config
from waltz_tools.local.seeding import open_admin

RELEASE, OURS = "0.13.2", "ours"
NODES = ("s1", "s2", "s3")
SERVERS = ("h1", "h2")
PARTITIONS = 4

_SESSION_TIMEOUT_MS = 6000
_TICKS = 20
"""ZooKeeper grants at most this many ticks as a session timeout."""
_SECONDS = 120.0
_SEGMENT_BYTES = 65_536
_PORTS = {**dict.fromkeys(NODES, ("7000", "7001", "7002")), **dict.fromkeys(SERVERS, ("8000", "8001"))}
_SERVICE = "-0.13.2"
"""What the name of a service of 0.13.2 ends with in docs/upgrade-from-0.13.2.md."""


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str


@dataclass
class Mix:
    """Ports by the names of the documents: storage 7000, admin 7001, HTTP 7002; server 8000, HTTP 8001."""

    directory: Path
    zookeeper: EmbeddedZooKeeper
    release: Release
    session_timeout_ms: int = _SESSION_TIMEOUT_MS
    journal: bool = False
    """Nodes of ours have the node journal (0.13.2 reads the same files, and ignores the keys)."""
    ports: dict[str, dict[str, int]] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    """Name of a process that runs -> its implementation."""
    _processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kinds in _PORTS.items():
            self.ports[name] = dict(zip(kinds, free_ports(len(kinds)), strict=True))
        for name in NODES:
            self.data(name).mkdir(parents=True)
        self.configure({})

    # -- files -----------------------------------------------------------------------------------------------

    def configure(self, tls: Mapping[str, Mapping[str, object]]) -> None:
        """Write every file. `tls`: keys by prefix; a prefix that is left out has self-signed certificates and
        verifies nothing."""
        common = common_keys(self.zookeeper.port, self.session_timeout_ms)

        def keys(prefix: str) -> dict[str, object]:
            given = tls.get(prefix, {"allowUnverified": True})
            return {f"{prefix}.{key}": value for key, value in given.items()}

        for name in NODES:
            ports = self.ports[name]
            node: dict[str, object] = {
                "storage.port": ports["7000"],
                "storage.admin.port": ports["7001"],
                "storage.jetty.port": ports["7002"],
                "storage.directory": str(self.data(name)),
                "storage.segment.size.threshold": _SEGMENT_BYTES,
                "storage.bind.host": LOOPBACK,
                "storage.journal.enabled": self.journal,
            }
            write_config(self.config(name), {**common, **node, **keys("storage.ssl")}, {})
        for name in SERVERS:
            ports = self.ports[name]
            server: dict[str, object] = {
                "server.port": ports["8000"],
                "server.jetty.port": ports["8001"],
                "server.bind.host": LOOPBACK,
                "server.advertised.host": LOOPBACK,
            }
            write_config(self.config(name), {**common, **server, **keys("server.ssl")}, {})
        write_config(self.config("tools"), {**common, **keys("client.ssl"), **keys("ssl")}, {})
        servers = [self.address(name, "8000") for name in SERVERS]
        write_config(self.config("application"), {"servers": servers, **keys("client.ssl")}, {})

    def config(self, name: str) -> Path:
        """The file of a process; "tools" is that of clients and commands, "application" that of clients of
        ours that are given servers."""
        return self.directory / f"{name}.yaml"

    def data(self, name: str) -> Path:
        """The storage directory of a node."""
        return self.directory / "data" / name

    def log(self, name: str) -> Path:
        """Where a process writes what it says, in all its lives."""
        return self.directory / f"{name}.log"

    def address(self, name: str, port: str) -> str:
        """host:port of a process, by the port's number in the documents."""
        return f"{LOOPBACK}:{self.ports[name][port]}"

    # -- processes -------------------------------------------------------------------------------------------

    def start(self, name: str, implementation: str, *, wait: bool = True) -> None:
        """With `wait`, returns when it listens."""
        kind = "storage" if name in NODES else "server"
        ours = [*(STORAGE if name in NODES else SERVER), str(self.config(name))]
        command = ours if implementation == OURS else self.release.process(kind, self.config(name))
        with self.log(name).open("ab") as log:
            log.write(f"-- start: {implementation}\n".encode())
            log.flush()
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log)
        self.runs[name] = implementation
        if wait:
            self.until_listens(name)

    def until_listens(self, name: str) -> None:
        """Until its last port is open; fails with the end of its log when it ends before that."""
        port, process = self.ports[name]["7001" if name in NODES else "8000"], self._processes[name]
        deadline = time.monotonic() + _SECONDS
        while True:
            assert process.poll() is None, f"{name} ended: {self._end_of_log(name)}"
            assert time.monotonic() < deadline, f"{name} does not listen: {self._end_of_log(name)}"
            with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), 1):
                return
            time.sleep(0.05)  # a poll: the process has no other way to say that it is ready

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Returns when it has ended and its ports are free again; fails when it had ended on its own."""
        process = self._processes.pop(name)
        del self.runs[name]
        assert process.poll() is None, f"{name} had ended with {process.returncode}: {self._end_of_log(name)}"
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_SECONDS)
            raise
        deadline = time.monotonic() + _SECONDS
        while not all(is_free(port) for port in self.ports[name].values()):
            assert time.monotonic() < deadline, f"the ports of {name} stay taken"
            time.sleep(0.05)  # a poll of the kernel

    def pause(self, name: str) -> None:
        """SIGSTOP: it keeps its connections and answers nothing, until `stop` or `resume`."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def swap(self, name: str, implementation: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a process and start the given implementation on its files and ports."""
        self.stop(name, number)
        self.start(name, implementation)

    def refused_by(self, name: str, implementation: str) -> str:
        """The end of the log of a process that does not start on the files of `name` but ends by itself."""
        self.start(name, implementation, wait=False)
        code = self._processes.pop(name).wait(_SECONDS)
        del self.runs[name]
        assert code != 0, f"{name} ended as if all were well: {self._end_of_log(name)}"
        return self._end_of_log(name)

    def lose_disk(self, name: str) -> None:
        """The directory of a node that does not run is empty then."""
        assert name not in self.runs
        shutil.rmtree(self.data(name))
        self.data(name).mkdir()

    def close(self) -> None:
        """End what runs."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(_SECONDS)

    def complaints(self) -> list[str]:
        """Stack traces and errors in what processes of ours wrote."""
        return [
            f"{name}: {line}"
            for name in (*NODES, *SERVERS)
            if self.log(name).exists()
            for line in self.log(name).read_text(errors="replace").splitlines()
            if line.startswith("Traceback") or "[error" in line or "[critical" in line
        ]

    def _end_of_log(self, name: str) -> str:
        return self.log(name).read_text(errors="replace")[-2000:]

    # -- what is on the disks --------------------------------------------------------------------------------

    def read(self) -> dict[int, dict[str, list[Entry]]]:
        """Partition -> node -> its records. A node with a journal has all of them in its files only after an
        orderly stop."""
        return {
            partition: {name: read_partition(self.data(name) / str(partition)) for name in NODES}
            for partition in range(PARTITIONS)
        }

    # -- tools -----------------------------------------------------------------------------------------------

    def waltz(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> Ended:
        """One command of ours; fails unless it ends with one of `codes`."""
        return self._command([*WALTZ, *arguments], codes)

    def tool(self, name: str, *arguments: str, codes: tuple[int, ...] = (0,)) -> Ended:
        """One command of 0.13.2's."""
        return self._command(self.release.tool(name, *arguments), codes)

    def health(self, name: str) -> str:
        """What a server of ours says of itself; empty when it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.address(name, '8001')}/health", timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.read().decode()
        except OSError:
            return ""

    def complete(self) -> None:
        """Until `verify` passes: every partition has its owner, and every replica takes part in its
        session."""
        self.waltz("cluster", "verify", "--wait", "120")

    def level(self) -> None:
        """Until each node holds as much as the others: a server of 0.13.2 may still fill one above its mark
        when `verify` passes."""
        deadline = time.monotonic() + _SECONDS
        while len(held := {self._last_records(name) for name in NODES}) > 1:
            assert time.monotonic() < deadline, f"not as much on each node: {held}"
            time.sleep(0.2)  # a poll of other processes

    def _last_records(self, name: str) -> tuple[str, ...]:
        ask = (
            "storage",
            "max-transaction-id",
            "-s",
            self.address(name, "7001"),
            "-sp",
            str(self.ports[name]["7000"]),
        )
        return tuple(self.waltz(*ask, "-p", str(partition)).out for partition in range(PARTITIONS))

    def _command(self, command: list[str], codes: tuple[int, ...]) -> Ended:
        environment = {**os.environ, "WALTZ_CONFIG": str(self.config("tools"))}
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=2 * _SECONDS, env=environment
        )
        said = f"{done.stdout[-1500:]}{done.stderr[-1500:]}"
        assert done.returncode in codes, f"{' '.join(command)[-300:]} ended with {done.returncode}: {said}"
        return Ended(done.returncode, done.stdout, done.stderr)

    # -- a cluster -------------------------------------------------------------------------------------------

    def up(self, storage: Mapping[str, str], servers: Mapping[str, str], *, by: str = OURS) -> None:
        """A new cluster of these processes; `by` says whose administration makes it."""
        if by == OURS:
            run(self._seed())
        else:
            self._seed_with_tools()
        self.start_together(storage)
        if by == OURS:
            run(self._sync())
        else:
            self.tool("StorageCli", "sync-partitions", "-c", str(self.config("tools")))
        self.start_together(servers)

    def start_together(self, processes: Mapping[str, str]) -> None:
        """Returns when all of them listen."""
        for name, implementation in processes.items():
            self.start(name, implementation, wait=False)
        for name in processes:
            self.until_listens(name)

    async def _seed(self) -> None:
        async with open_admin(self.config("tools")) as admin:
            await admin.create(PARTITIONS, None)
            for group, name in enumerate(NODES, 1):
                ports = self.ports[name]
                await admin.add_node(Endpoint(LOOPBACK, ports["7000"]), ports["7001"], group, assign=True)

    async def _sync(self) -> None:
        async with open_admin(self.config("tools")) as admin:
            await admin.sync_partitions()

    def _seed_with_tools(self) -> None:
        config = ["-c", str(self.config("tools"))]
        self.tool("ZooKeeperCli", "create", *config, "-n", CLUSTER_NAME, "-p", str(PARTITIONS))
        for group, name in enumerate(NODES, 1):
            node, admin_port = self.address(name, "7000"), str(self.ports[name]["7001"])
            self.tool(
                "ZooKeeperCli", "add-storage-node", *config, "-s", node, "-a", admin_port, "-g", str(group)
            )
            self.tool("ZooKeeperCli", "assign-partition", *config, "-s", node, "-p", f"0-{PARTITIONS - 1}")

    # -- documents -------------------------------------------------------------------------------------------

    def follow(self, block: Block) -> list[Ended]:
        """Run a block of docs/upgrade-from-0.13.2.md line by line, with its names and paths translated."""
        return [self._line(line) for line in block.commands]

    def _line(self, line: str) -> Ended:
        words = [self._word(word) for word in shlex.split(line)]
        if words[0] == "systemctl":
            service, _, name = words[2].partition("@")
            if words[1] == "stop":
                self.stop(name)
            else:
                self.start(name, RELEASE if service.endswith(_SERVICE) else OURS)
            return Ended(0, "", "")
        if words[0] == "waltz":
            return self.waltz(*words[1:])
        return self._command(words, (0,))

    def _word(self, word: str) -> str:
        name, _, port = word.partition(":")
        if name in self.ports and port in self.ports[name]:
            return self.address(name, port)
        return word.replace("/etc/waltz/", f"{self.directory}/") if word.startswith("/etc/waltz/") else word


@contextlib.contextmanager
def open_mix(
    directory: Path, release: Release, session_timeout_ms: int = _SESSION_TIMEOUT_MS, *, journal: bool = False
) -> Iterator[Mix]:
    """A ZooKeeper and nothing else; everything is stopped at the end."""
    tick_ms = max(500, session_timeout_ms // _TICKS)
    with EmbeddedZooKeeper(directory / "zookeeper", tick_time_ms=tick_ms) as zookeeper:
        mix = Mix(directory, zookeeper, release, session_timeout_ms, journal)
        try:
            yield mix
        finally:
            mix.close()
