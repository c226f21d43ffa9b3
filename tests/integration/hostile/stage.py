"""A cluster under attack: the attacker's process, a bystander who appends, and eyes on memory and log of the
attacked."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from tests.integration.hostile.catalogue import Attack
from tests.integration.hostile.wires import Target
from tests.integration.workload import History, check_log
from waltz_client import WaltzClient
from waltz_client.errors import AppendError, Outcome
from waltz_tools.local import LocalCluster

MIB = 1024 * 1024
_SAMPLE_SECONDS = 0.02
_REPOSITORY = Path(__file__).resolve().parents[3]


class Attacker:
    """The process that attacks run in. `async with Attacker() as attacker`."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "Attacker":
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integration.hostile.attacker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=_REPOSITORY,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        process = self._process
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def run(self, attack: Attack, target: Target) -> None:
        """Until the attack is over; AssertionError when what it expected of the attacked side was not so."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        order = {"attack": attack.name, "target": asdict(target)}
        process.stdin.write(json.dumps(order).encode() + b"\n")
        line = await process.stdout.readline()
        error = json.loads(line)["error"] if line else "the attacker's process has ended"
        assert error is None, error


@dataclass
class Bystander:
    """Appends to all partitions in turn, one at a time, and remembers outcomes and latencies."""

    client: WaltzClient
    history: History = field(default_factory=History)
    latencies: list[float] = field(default_factory=list)
    _count: int = 0

    async def append_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await self.append()

    async def append_until(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self.append()

    async def append(self, size_bytes: int = 120) -> None:
        """One append with a deadline of 30 s; its outcome is remembered."""
        self._count += 1
        data = f"bystander {self._count}".encode().ljust(size_bytes, b".")
        partition = self._count % self.client.num_partitions
        started = time.monotonic()
        self.history.unknown.add(data)  # also when it is cancelled
        try:
            done = await self.client.append(partition=partition, data=data, deadline_seconds=30)
        except AppendError as error:
            if error.outcome is Outcome.FAILED:
                self.history.unknown.remove(data)
                self.history.failed.add(data)
            return
        self.history.unknown.remove(data)
        self.latencies.append(time.monotonic() - started)
        self.history.committed(data, partition, done.transaction_id)

    def take_latencies(self) -> list[float]:
        """Latencies since the last call, in seconds, ascending."""
        taken, self.latencies = sorted(self.latencies), []
        return taken


@dataclass(frozen=True)
class Damage:
    """What an attack did to the attacked process and to the bystander."""

    memory_mib: float
    """Highest resident memory during the attack above that right before it."""
    calm_p99_ms: float
    attacked_p99_ms: float
    attacked_appends: int
    seconds: float
    log: str
    """What the attacked process logged meanwhile."""
    named: bool
    """That is the attacker's address, among others."""

    @property
    def ratio(self) -> float:
        return self.attacked_p99_ms / self.calm_p99_ms if self.calm_p99_ms else 0.0


class Stage:
    """One running cluster, its attacker and its bystander; see `stage`."""

    def __init__(
        self, cluster: LocalCluster, attacker: Attacker, bystander: Bystander, cluster_key: str
    ) -> None:
        self.cluster = cluster
        self.bystander = bystander
        self._attacker = attacker
        self._cluster_key = cluster_key
        self._attacks = 0

    def role(self, kind: str) -> str:
        """The attacked role: HTTP is tried on a storage node (`http`) and on a server (`server-http`)."""
        return "server-1" if kind in ("client", "server-http") else "storage-1"

    def target(self, kind: str, seconds: float = 1.0, key_file: str | None = None) -> Target:
        name = {"client": "server", "server-http": "http"}.get(kind, kind)
        return Target(
            "http" if kind == "server-http" else kind,
            self.cluster.port(self.role(kind), name),
            bool(self.cluster.state.tls) and not kind.endswith("http"),
            self._cluster_key,
            self.cluster.state.partitions,
            seconds,
            key_file,
            f"127.0.66.{self._attacks % 250 + 1}",
        )

    async def suffer(
        self,
        attack: Attack,
        kind: str,
        *,
        calm_seconds: float = 0.5,
        key_file: str | None = None,
        stretch: float = 1.0,
        at_least_seconds: float = 0.0,
    ) -> Damage:
        """One attack while the bystander appends, after some time in which it appends undisturbed.

        `stretch` makes the attack longer or shorter, `at_least_seconds` has it repeated until so much time
        has passed.
        """
        self._attacks += 1
        role, bystander = self.role(kind), self.bystander
        target = self.target(kind, attack.seconds * stretch, key_file)
        process = psutil.Process(self.cluster.pid(role))
        bystander.take_latencies()
        await bystander.append_for(calm_seconds)
        calm = bystander.take_latencies()
        log_path = self.cluster.log_path(role)
        log_start = log_path.stat().st_size
        baseline = peak = process.memory_info().rss
        over = asyncio.Event()
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            appending = group.create_task(bystander.append_until(over))
            attacking = group.create_task(self._attack(attack, target, at_least_seconds))
            while not attacking.done():
                peak = max(peak, process.memory_info().rss)
                await asyncio.sleep(_SAMPLE_SECONDS)
            over.set()
            await appending
        seconds = time.monotonic() - started
        attacked = bystander.take_latencies()
        with log_path.open("rb") as log:
            log.seek(log_start)
            text = log.read().decode(errors="replace")
        return Damage(
            (peak - baseline) / MIB,
            p99_ms(calm),
            p99_ms(attacked),
            len(attacked),
            seconds,
            text,
            f"{target.source}:" in text,
        )

    async def _attack(self, attack: Attack, target: Target, at_least_seconds: float) -> None:
        until = time.monotonic() + at_least_seconds
        await self._attacker.run(attack, target)
        while time.monotonic() < until:
            await self._attacker.run(attack, target)

    async def is_unharmed(self) -> None:
        """Every role runs, and the log holds exactly what was acknowledged."""
        assert self.cluster.unexpected_ends() == []
        await self.bystander.append()
        verdict = await check_log(self.cluster.client_config, self.bystander.history)
        assert verdict.passed, str(verdict)


def p99_ms(latencies: list[float]) -> float:
    """99th percentile of ascending seconds, in ms; 0 of none."""
    return latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))] * 1000 if latencies else 0.0


@asynccontextmanager
async def stage(cluster: LocalCluster, filled_bytes: int = 0) -> AsyncIterator[Stage]:
    """Around a running cluster; `filled_bytes` of transactions are in its log first (for those who read)."""
    key = cluster.state.cluster_key
    assert key is not None
    async with Attacker() as attacker, WaltzClient.connect(cluster.client_config) as client:
        bystander = Bystander(client)
        for _ in range(filled_bytes // MIB):
            await bystander.append(MIB)
        await bystander.append_for(0.3)
        yield Stage(cluster, attacker, bystander, str(key))
