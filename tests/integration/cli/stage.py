"""What docs/operations.md speaks of, on this machine: nodes s1 to s7, servers h1 and h2, a ZooKeeper, and a
load.

Names and ports of the document are translated (`s1:7000` is a storage port here), `systemctl` starts and
stops processes, everything else is run as it is.
"""

import asyncio
import contextlib
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.cli.blocks import Block
from tests.integration.cli.live import SECONDS, Done, run_command, until_open
from tests.integration.processes import SERVER, STORAGE
from tests.integration.workload import History, Verdict, check_log
from waltz_client import WaltzClient
from waltz_client.errors import AppendError, Outcome
from waltz_testkit.ports import free_ports
from waltz_testkit.zookeeper import EmbeddedZooKeeper
from waltz_tools.local import configs
from waltz_tools.local.configs import write_config

NODES = ("s1", "s2", "s3", "s4", "s5", "s6", "s7")
SERVERS = ("h1", "h2")
_PAUSE_SECONDS = 0.05
# option with a bare port -> option that names the node it belongs to
_PORT_OF = {"-a": "-s", "-sp": "-s", "-dp": "-d", "--new-admin-port": "--new"}


@dataclass
class Stage:
    """Processes by name; `config` is what WALTZ_CONFIG of the document names."""

    directory: Path
    zookeeper: EmbeddedZooKeeper
    node_keys: dict[str, object] = field(default_factory=dict)
    """Configuration keys of all storage nodes besides those that each has."""
    ports: dict[str, dict[str, int]] = field(default_factory=dict)
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        common = configs.common_keys(int(self.zookeeper.connect_string.rpartition(":")[2]), 6000)
        ports = iter(free_ports(3 * len(NODES) + 2 * len(SERVERS)))
        for name in NODES:
            self.ports[name] = {"storage": next(ports), "admin": next(ports), "http": next(ports)}
            self.data(name).mkdir(parents=True)
            keys = configs.storage_keys(common, self.ports[name], self.data(name), True)
            write_config(self.directory / f"{name}.yaml", keys, self.node_keys)
        for name in SERVERS:
            self.ports[name] = {"server": next(ports), "http": next(ports)}
            write_config(
                self.directory / f"{name}.yaml", configs.server_keys(common, self.ports[name], True), {}
            )
        write_config(self.directory / "tools.yaml", configs.client_keys(common, True), {})

    @property
    def config(self) -> str:
        return str(self.directory / "tools.yaml")

    def data(self, name: str) -> Path:
        """The storage directory of a node."""
        return self.directory / "data" / name

    def node(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]['storage']}"

    # -- processes -------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """As its service would; returns at once."""
        program = STORAGE if name in NODES else SERVER
        with (self.directory / f"{name}.log").open("ab") as log:
            command = [*program, str(self.directory / f"{name}.yaml")]
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Returns when it has ended."""
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(SECONDS)

    def until(
        self,
        condition: Callable[[], object],
        what: str,
        *,
        load: "Load | None" = None,
        seconds: float = SECONDS,
    ) -> None:
        """Until the condition holds. Fails after this many seconds, and at once with the last output of a
        process that has ended on its own, or with the failure of the load."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.look()
            if load is not None:
                load.look()
            assert time.monotonic() < deadline, f"{what}: not after {seconds:g} s"
            time.sleep(_PAUSE_SECONDS)

    def look(self) -> None:
        """Fails when a process that was started has ended on its own, with the end of its log."""
        ended = {name: code for name, one in self.processes.items() if (code := one.poll()) is not None}
        for name, code in ended.items():
            tail = (self.directory / f"{name}.log").read_text(errors="replace")[-2000:]
            raise AssertionError(f"{name} has ended with {code}:\n{tail}")

    def close(self) -> None:
        """Stop what runs."""
        for name in sorted(self.processes, key=lambda one: (one in NODES, one)):
            self.stop(name)

    # -- the document ----------------------------------------------------------------------------------------

    def follow(self, block: Block) -> list[Done]:
        """Run a block line by line; every command has to succeed."""
        return [self._line(line) for line in block.commands]

    def _line(self, line: str) -> Done:
        words = [self._word(word) for word in shlex.split(line)]
        for option, owner in _PORT_OF.items():
            if option in words and owner in words:
                place, name = (
                    words.index(option) + 1,
                    shlex.split(line)[words.index(owner) + 1].partition(":")[0],
                )
                words[place] = str(self.ports[name]["storage" if words[place] == "7000" else "admin"])
        if words[0] == "systemctl":
            return self._service(words[1], words[2].partition("@")[2])
        if words[0] == "waltz":
            done = self.waltz(*words[1:])
        else:
            ended = subprocess.run(words, check=False, capture_output=True, timeout=SECONDS)
            done = Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode(), ended.stdout)
        assert done.code == 0, (line, done)
        return done

    def waltz(self, *arguments: str) -> Done:
        """One command of the document's."""
        return run_command(self.config, *arguments)

    def _service(self, verb: str, name: str) -> Done:
        if verb in ("stop", "restart"):
            self.stop(name)
        if verb in ("start", "restart"):
            self.start(name)
            port = self.ports[name]["admin" if name in NODES else "http"]
            until_open(port, self.processes[name], self.directory / f"{name}.log")
        return Done(0, "", "", b"")

    def _word(self, word: str) -> str:
        match = re.fullmatch(r"(s\d|h\d):(7000|7001|8000|8001)", word)
        if match:
            kind = {"7000": "storage", "7001": "admin", "8000": "server", "8001": "http"}[match[2]]
            return f"127.0.0.1:{self.ports[match[1]][kind]}"
        match = re.fullmatch(r"/(data|backup)/(s\d)(/\.?)?", word)
        if match:
            return f"{self.directory / match[1] / match[2]}{match[3] or ''}"
        return word

    # -- what happens to it ----------------------------------------------------------------------------------

    def lose_disk(self, name: str) -> None:
        """It dies, and its disk is empty then."""
        self.stop(name, signal.SIGKILL)
        shutil.rmtree(self.data(name))
        self.data(name).mkdir()

    def back_up(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Copy its directory away while it is stopped; SIGKILL: it is as in a snapshot of the file system."""
        self.stop(name, number)
        shutil.copytree(self.data(name), self.directory / "backup" / name)
        self.start(name)


class Load:
    """Appends to every partition, a few at a time, in a thread of its own, and remembers how each ended."""

    def __init__(self, config: str, history: History | None = None) -> None:
        """`history`: that of an earlier load, to be continued."""
        self.history = history or History()
        self._mark = len(self.history.acknowledged)  # no two records of one history are the same
        self._config = config
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is on its way is waited for."""
        self._stop.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        self.look()

    def look(self) -> None:
        """Fails when the load has ended on its own."""
        if self._failure is not None:
            raise AssertionError(f"the load has ended: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._all())
        except BaseException as error:
            self._failure = error

    async def _all(self) -> None:
        async with WaltzClient.connect(self._config) as client, asyncio.TaskGroup() as group:
            for partition in range(client.num_partitions):
                group.create_task(self._write(client, partition))

    async def _write(self, client: WaltzClient, partition: int) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            data = f"{self._mark}/{partition}/{number}".encode().ljust(200, b".")
            try:
                done = await client.append(partition=partition, data=data, deadline_seconds=60)
            except AppendError as error:
                known = self.history.failed if error.outcome is Outcome.FAILED else self.history.unknown
                known.add(data)
            else:
                self.history.committed(data, partition, done.transaction_id)
            await asyncio.sleep(_PAUSE_SECONDS)

    def check(self) -> Verdict:
        """Hold the log against what was acknowledged."""
        return asyncio.run(check_log(Path(self._config), self.history))


@contextlib.contextmanager
def open_stage(directory: Path, node_keys: dict[str, object] | None = None) -> Iterator[Stage]:
    """A ZooKeeper and nothing else; everything is stopped at the end."""
    with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper:
        stage = Stage(directory, zookeeper, node_keys or {})
        try:
            yield stage
        finally:
            stage.close()
