"""All processes under one roof, cluster and load alike, and a supervisor that starts again what ended on
its own.

A server that can't reach ZooKeeper at its start ends with one line, as it should; in production something
starts it again. What ends in another way than by an error of one line is a finding.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.integration.nemesis.clients import CLIENTS, LoadProcesses
from tests.integration.nemesis.wiring import ProxiedCluster
from waltz_tools.errors import ProcessFailedError

_LOOK_SECONDS = 0.3
_TRACE = "Traceback (most recent call last):"
_OPERATORS_MISTAKE = 1
_ORDERLY = (0, _OPERATORS_MISTAKE, 128 + signal.SIGTERM, -signal.SIGTERM)
"""Exit codes after SIGTERM: the JVM has its own; one that is still starting may have no handler, or
ZooKeeper."""
_READY_SECONDS = 60.0


class Roles:
    """Starts, stops, pauses. `findings` gets one line per process that ended as it must not."""

    def __init__(self, cluster: ProxiedCluster, clients: LoadProcesses) -> None:
        self.cluster = cluster
        self.clients = clients
        self.findings: list[str] = []
        self.restarted = 0
        self._locks = {role: asyncio.Lock() for role in self.names}
        self._retired: dict[str, None] = {}

    @property
    def names(self) -> list[str]:
        return [*self.cluster.roles, *CLIENTS]

    @asynccontextmanager
    async def held(self, role: str) -> AsyncIterator[None]:
        """Inside, nobody else touches it, the supervisor included; at the end it runs (but may not answer
        yet)."""
        async with self._locks[role]:
            await self._start_if_ended(role)
            yield
            await self.ensure(role)

    def retire(self, role: str) -> None:
        """It is not needed any longer: nobody starts it again."""
        self._retired[role] = None

    def is_running(self, role: str) -> bool:
        return self.clients.is_running(role) if role in CLIENTS else self.cluster.is_running(role)

    async def start(self, role: str) -> None:
        if role in CLIENTS:
            await self.clients.start(role)
        else:
            await self.cluster.start_role(role, wait=False)

    async def ensure(self, role: str) -> None:
        """It runs, and is not stopped."""
        self.resume(role)
        if not self.is_running(role):
            await self.start(role)

    async def kill(self, role: str) -> None:
        if role in CLIENTS:
            await self.clients.process(role).kill()
        else:
            await self.cluster.kill_role(role)

    async def terminate(self, role: str) -> None:
        """SIGTERM; a finding when it does not end on its own, or not in order."""
        if not self.is_running(role):
            return
        if role in CLIENTS:
            ended = await self.clients.stop(role)
            code = self.clients.process(role).exit_code
        else:
            ended = await self.cluster.stop_role(role)
            code = self.cluster.exit_code(role)
        if not ended:
            self.findings.append(f"{role} did not end after SIGTERM and was killed")
        elif code not in _ORDERLY:
            self.findings.append(f"{role} ended after SIGTERM with code {code}")

    def pause(self, role: str) -> None:
        if not self.is_running(role):
            return
        if role in CLIENTS:
            self.clients.process(role).pause()
        else:
            self.cluster.pause_role(role)

    def resume(self, role: str) -> None:
        if not self.is_running(role):
            return
        if role in CLIENTS:
            self.clients.process(role).resume()
        else:
            self.cluster.resume_role(role)

    async def supervise(self) -> None:
        """Forever: start again what ended on its own."""
        while True:
            for role in self.names:
                if role in self._retired or self._locks[role].locked() or self.is_running(role):
                    continue
                async with self._locks[role]:
                    await self._start_if_ended(role)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _start_if_ended(self, role: str) -> None:
        """What nobody asked to end has a reason, which is kept."""
        if self.is_running(role):
            return
        self.restarted += 1
        if role in CLIENTS:
            process = self.clients.process(role)
            code, why = process.exit_code, process.last_words()
        else:
            code, why = self.cluster.exit_code(role), self.cluster.why_ended(role)
        if code != _OPERATORS_MISTAKE or role in CLIENTS:
            self.findings.append(f"{role} ended on its own with code {code}: {why}")
        await self.start(role)

    async def all_ready(self) -> None:
        """Every process runs and answers."""
        async with asyncio.timeout(_READY_SECONDS):
            for role in self.names:
                while True:
                    if self.is_running(role):
                        try:
                            if role not in CLIENTS:
                                await self.cluster.wait_ready(role)
                            break
                        except ProcessFailedError:
                            pass  # it ended once more; the supervisor starts it again
                    await asyncio.sleep(_LOOK_SECONDS)

    def unforeseen(self) -> list[str]:
        """Stack traces in the logs of the cluster: errors nobody foresaw."""
        found = []
        for role in self.cluster.roles:
            text = self.cluster.log_path(role).read_text(errors="replace")
            for part in text.split(_TRACE)[1:]:
                lines = [line for line in part.splitlines() if line and not line.startswith(" ")]
                found.append(f"stack trace in the log of {role}: {lines[0] if lines else ''}")
        return found
