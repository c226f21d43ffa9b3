"""`LocalCluster`: one ZooKeeper, storage nodes and servers as real processes on this machine.

Roles are named `zookeeper`, `storage-1` …, `server-1` …. Everything listens on 127.0.0.1; ports, shape and
data live in the cluster directory, so the same directory comes up again as the same cluster.

Owner of every process and of the directory: this object, in the thread that started it (see `parent_guard`).
Order of start: ZooKeeper, seeding of a new cluster, storage nodes, servers; order of stop: the reverse.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from waltz_protocol.types import Endpoint
from waltz_runtime.ports import LOOPBACK, PortReservations
from waltz_tools.errors import LocalClusterError
from waltz_tools.extras import require
from waltz_tools.local import configs, health, private, seeding
from waltz_tools.local.process import ManagedProcess
from waltz_tools.local.state import ClusterDirectory, ClusterState, settle_ports
from waltz_tools.local.zookeeper import ENVIRONMENT, ZooKeeperFiles, is_serving

ZOOKEEPER = "zookeeper"
_STORAGE_PORTS = ("storage", "admin", "http")
_SERVER_PORTS = ("server", "http")
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """What to run. None means: as the directory remembers, else the default (3 storage nodes, 2 servers, 8
    partitions, TLS).

    `overrides` adds or replaces configuration keys: under "storage", "server", "client" for every process of
    that kind, under a role name ("storage-2") for one; a value of None removes the key. `wrappers` puts a
    command in front of a role's own (`("fiu-run", "-x")`); it must become the program, not start it as a
    child.
    """

    directory: Path
    storage_nodes: int | None = None
    servers: int | None = None
    partitions: int | None = None
    tls: bool | None = None
    session_timeout_ms: int = 4_000
    overrides: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    wrappers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    start_timeout_seconds: float = 60.0
    stop_timeout_seconds: float = 15.0


class LocalCluster:
    """`async with LocalCluster(settings) as cluster:` — up on entry, stopped in order on exit.

    Errors: `LocalClusterError` and its subclasses, each one clear line. Cancellation of `start` stops what
    was started.
    """

    def __init__(self, settings: LocalSettings, *, report: Callable[[str], None] = lambda line: None) -> None:
        """`report` gets a short line per step of start and stop."""
        self.settings = settings
        self.directory = ClusterDirectory(settings.directory.absolute())
        self.client_config = self.directory.conf_dir / "client.yaml"
        self.application_config = self.directory.conf_dir / "application.yaml"
        """The same for applications: it names servers, not ZooKeeper."""
        self._report = report
        self._state: ClusterState | None = None
        self._processes: dict[str, ManagedProcess] = {}
        self._ports = PortReservations(most=10_000)
        self._overrides: dict[str, dict[str, object]] = {
            name: dict(keys) for name, keys in settings.overrides.items()
        }
        self._zookeeper_files = ZooKeeperFiles.under(self.directory.path, self.directory.conf_dir)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- facts -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> ClusterState:
        """Shape and ports; LocalClusterError before `start`."""
        if self._state is None:
            raise LocalClusterError("the cluster was not started")
        return self._state

    @property
    def roles(self) -> list[str]:
        """All roles in the order of start."""
        return [ZOOKEEPER, *self.storage_roles, *self.server_roles]

    @property
    def storage_roles(self) -> list[str]:
        return sorted((role for role in self.state.ports if role.startswith("storage-")), key=_number)

    @property
    def server_roles(self) -> list[str]:
        return [f"server-{number}" for number in range(1, self.state.servers + 1)]

    @property
    def zookeeper_endpoint(self) -> Endpoint:
        return Endpoint(LOOPBACK, self.port(ZOOKEEPER, "client"))

    def port(self, role: str, name: str) -> int:
        """A port of a role: zookeeper client; storage-N storage, admin, http; server-N server, http."""
        try:
            return self.state.ports[role][name]
        except KeyError:
            raise LocalClusterError(f"{role} has no port named {name}") from None

    def storage_endpoint(self, role: str) -> Endpoint:
        """Storage port of a node: the name by which the cluster knows it."""
        return Endpoint(LOOPBACK, self.port(role, "storage"))

    def admin_endpoint(self, role: str) -> Endpoint:
        return Endpoint(LOOPBACK, self.port(role, "admin"))

    def server_endpoint(self, role: str) -> Endpoint:
        return Endpoint(LOOPBACK, self.port(role, "server"))

    def http_endpoint(self, role: str) -> Endpoint:
        """Of a server or a storage node: /health, /metrics."""
        return Endpoint(LOOPBACK, self.port(role, "http"))

    def storage_directory(self, role: str) -> Path:
        return self.directory.path / role

    def log_path(self, role: str) -> Path:
        return self.directory.logs_dir / f"{role}.log"

    def config_path(self, role: str) -> Path:
        return self.directory.conf_dir / f"{role}.yaml"

    def pid(self, role: str) -> int:
        return self._process(role).pid

    def is_running(self, role: str) -> bool:
        return role in self._processes and self._processes[role].running

    def unexpected_ends(self) -> list[tuple[str, int]]:
        """Roles that ended without being asked to, with their exit codes."""
        return [
            (role, process.exit_code)
            for role, process in self._processes.items()
            if process.exit_code is not None and not process.stopping
        ]

    def why_ended(self, role: str) -> str:
        """One line about a role that ended."""
        process = self._process(role)
        return str(process.failure(f"ended with code {process.exit_code}"))

    # -- whole cluster ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bring everything up; returns when every partition is served. On failure nothing is left running."""
        require(
            "a local cluster needs storage nodes and servers on this machine",
            "local",
            "waltz_storage",
            "waltz_server",
        )
        self.directory.open()
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        left_overs = self.directory.kill_left_overs()
        if left_overs:
            self._report(f"ended processes that an earlier run left behind: {', '.join(left_overs)}")
        self._state = self._merged_state(self.directory.load())
        self._settle_ports()
        self.directory.save(self.state)
        self._render()
        self._report("starting ZooKeeper")
        await self.start_role(ZOOKEEPER)
        async with seeding.open_admin(self.client_config) as admin:
            if not self.state.seeded:
                self._report(
                    f"creating the cluster: {self.state.partitions} partitions, {self.state.storage_nodes} storage nodes"
                )
            # A seeded cluster is only looked at: lost or foreign ZooKeeper data is refused before anything
            # else starts.
            self.state.cluster_key = await admin.create(self.state.partitions, self.state.cluster_key)
            self._render_application()  # with the key
            if not self.state.seeded:
                self.directory.save(self.state)
                for role in self.storage_roles:
                    await admin.add_node(
                        self.storage_endpoint(role), self.port(role, "admin"), _number(role), assign=True
                    )
            # Those that have to join, too: after an interrupted join a partition may need the vote of one.
            await self._start_all("storage nodes", self.storage_roles)
            if not self.state.seeded:
                await admin.sync_partitions()
                self.state.seeded = True
                self.directory.save(self.state)
        await self._start_all("servers", self.server_roles)
        await self.wait_serving()
        for role in list(self.state.joining):
            await self._join(role)

    async def stop(self) -> None:
        """Stop servers, storage nodes, ZooKeeper, in this order, and give the directory back. Safe to call
        twice."""
        servers = [role for role in self._processes if role.startswith("server-")]
        nodes = [role for role in self._processes if role.startswith("storage-")]
        for roles in (servers, nodes, [ZOOKEEPER]):
            running = [role for role in roles if self.is_running(role)]
            if running:
                self._report(f"stopping {', '.join(running)}")
                await asyncio.gather(*(self.stop_role(role) for role in running))
        self._processes.clear()
        self._ports.close()
        self.directory.close()

    async def wait_serving(self, timeout_seconds: float | None = None) -> None:
        """Wait until the running servers serve every partition in health; LocalClusterError names what is
        missing."""
        limit = self.settings.start_timeout_seconds if timeout_seconds is None else timeout_seconds
        missing = set(range(self.state.partitions))
        try:
            async with asyncio.timeout(limit):
                while missing:
                    self._raise_if_ended(self.server_roles)
                    ports = [self.port(role, "http") for role in self.server_roles if self.is_running(role)]
                    missing = set(range(self.state.partitions)) - await health.served_partitions(ports)
                    if missing:
                        await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            text = ", ".join(str(partition) for partition in sorted(missing))
            raise LocalClusterError(
                f"partitions not served after {limit:.0f} s: {text} (logs: {self.directory.logs_dir})"
            ) from None

    # -- one role --------------------------------------------------------------------------------------------

    async def start_role(self, role: str, *, wait: bool = True) -> None:
        """Start one process; with `wait`, returns when it answers. ProcessFailedError when it ends first."""
        process = self._processes.get(role)
        if process is None:
            environment = dict(self.settings.environment)
            if role == ZOOKEEPER:
                environment |= ENVIRONMENT
            process = ManagedProcess(role, self._command(role), self.log_path(role), environment)
            self._processes[role] = process
        await process.start()
        self.directory.record_pid(role, process.pid)
        if wait:
            await self.wait_ready(role)

    async def wait_ready(self, role: str, timeout_seconds: float | None = None) -> None:
        """Wait until a role answers (ZooKeeper serves; a storage node or server answers over HTTP)."""
        limit = self.settings.start_timeout_seconds if timeout_seconds is None else timeout_seconds
        try:
            async with asyncio.timeout(limit):
                while not await self._answers(role):
                    self._raise_if_ended([role])
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise self._process(role).failure(f"is not ready after {limit:.0f} s") from None

    async def stop_role(self, role: str) -> bool:
        """SIGTERM; True when it ended in time (after `stop_timeout_seconds` it gets SIGKILL)."""
        ended = await self._process(role).stop(self.settings.stop_timeout_seconds)
        self.directory.forget_pid(role)
        if not ended:
            self._report(
                f"{role} did not stop within {self.settings.stop_timeout_seconds:.0f} s and was killed"
            )
        return ended

    async def kill_role(self, role: str) -> None:
        """SIGKILL."""
        await self._process(role).kill()
        self.directory.forget_pid(role)

    async def restart_role(self, role: str, *, wait: bool = True) -> None:
        """Stop in order, start again on the same ports and data."""
        await self.stop_role(role)
        await self.start_role(role, wait=wait)

    def pause_role(self, role: str) -> None:
        """SIGSTOP: alive, and deaf."""
        self._process(role).pause()

    def resume_role(self, role: str) -> None:
        """SIGCONT."""
        self._process(role).resume()

    def override(self, name: str, keys: Mapping[str, object]) -> None:
        """Change configuration keys of a kind or role (see `LocalSettings.overrides`); effective at its next
        start."""
        self._overrides.setdefault(name, {}).update(keys)
        self._render()

    # -- changing the shape ----------------------------------------------------------------------------------

    async def add_storage_node(self) -> str:
        """Start one more node in a group of its own, with a replica of every partition; returns its role.

        Returns when the servers were informed; the copy continues in the background.
        """
        role = f"storage-{max((_number(name) for name in self.storage_roles), default=0) + 1}"
        self.state.storage_nodes += 1
        settle_ports(self.state, {role: _STORAGE_PORTS}, random.Random(), self._ports)
        self.state.joining.append(role)
        self.directory.save(self.state)
        self._render()
        await self.start_role(role)
        await self._join(role)
        return role

    async def remove_storage_node(self, role: str) -> None:
        """Take a node's replicas away, then the node; its process ends, its files stay."""
        async with seeding.open_admin(self.client_config) as admin:
            await admin.remove_node(self.storage_endpoint(role), self.port(role, "admin"))
        if self.is_running(role):
            await self.stop_role(role)
        self._processes.pop(role, None)
        del self.state.ports[role]
        self.state.joining = [other for other in self.state.joining if other != role]
        self.state.storage_nodes -= 1
        self.directory.save(self.state)

    async def add_server(self) -> str:
        """Start one more server; returns its role."""
        self.state.servers += 1
        role = f"server-{self.state.servers}"
        settle_ports(self.state, {role: _SERVER_PORTS}, random.Random(), self._ports)
        self.directory.save(self.state)
        self._render()
        await self.start_role(role)
        return role

    # -- inside ----------------------------------------------------------------------------------------------

    async def _join(self, role: str) -> None:
        self._report(f"adding {role}")
        async with seeding.open_admin(self.client_config) as admin:
            await admin.join_node(self.storage_endpoint(role), self.port(role, "admin"), _number(role))
        self.state.joining.remove(role)
        self.directory.save(self.state)

    async def _start_all(self, what: str, roles: Iterable[str]) -> None:
        names = list(roles)
        self._report(f"starting {len(names)} {what}")
        for role in names:
            await self.start_role(role, wait=False)
        for role in names:
            await self.wait_ready(role)

    def _merged_state(self, known: ClusterState | None) -> ClusterState:
        wanted = self.settings
        if known is None:
            state = ClusterState(
                partitions=8 if wanted.partitions is None else wanted.partitions,
                tls=True if wanted.tls is None else wanted.tls,
                storage_nodes=3 if wanted.storage_nodes is None else wanted.storage_nodes,
                servers=2 if wanted.servers is None else wanted.servers,
            )
        else:
            state = known
            if wanted.partitions not in (None, known.partitions):
                raise LocalClusterError(
                    f"{self.directory.path} holds a cluster of {known.partitions} partitions; the number cannot be changed"
                )
            if wanted.storage_nodes is not None and wanted.storage_nodes < known.storage_nodes:
                raise LocalClusterError(
                    f"{self.directory.path} holds a cluster of {known.storage_nodes} storage nodes and takes none away: "
                    "leave --storage-nodes out, and while it runs take a node out of use with "
                    "`waltz zk unassign-partition --drop-group-copy`"
                )
            state.tls = known.tls if wanted.tls is None else wanted.tls
            state.storage_nodes = wanted.storage_nodes or known.storage_nodes
            state.servers = wanted.servers or known.servers
        if min(state.partitions, state.storage_nodes, state.servers) < 1:
            raise LocalClusterError("a cluster needs at least 1 partition, 1 storage node and 1 server")
        return state

    def _settle_ports(self) -> None:
        """Ports for every role; the storage roles that a seeded cluster gets in addition have to join."""
        old = [role for role in self.state.ports if role.startswith("storage-")]
        numbers = [_number(role) for role in old]
        extra = self.state.storage_nodes - len(old)
        new = [f"storage-{max(numbers, default=0) + offset}" for offset in range(1, extra + 1)]
        wanted: dict[str, tuple[str, ...]] = {ZOOKEEPER: ("client",)}
        wanted.update(dict.fromkeys([*old, *new], _STORAGE_PORTS))
        wanted.update(dict.fromkeys(self.server_roles, _SERVER_PORTS))
        settle_ports(self.state, wanted, random.Random(), self._ports)
        if self.state.seeded:
            self.state.joining += new

    def _render(self) -> None:
        state = self.state
        self._zookeeper_files.write(self.port(ZOOKEEPER, "client"))
        common = configs.common_keys(self.port(ZOOKEEPER, "client"), self.settings.session_timeout_ms)
        for role in self.storage_roles:
            directory = self.storage_directory(role)
            private.make_folder(directory)
            self._write(
                role, "storage", configs.storage_keys(common, state.ports[role], directory, state.tls)
            )
        for role in self.server_roles:
            self._write(role, "server", configs.server_keys(common, state.ports[role], state.tls))
        self._write("client", "client", configs.client_keys(common, state.tls))
        self._render_application()

    def _render_application(self) -> None:
        state = self.state
        ports = [state.ports[role]["server"] for role in self.server_roles]
        self._write(
            "application",
            "application",
            configs.application_keys(ports, self._overrides.get("client", {}), state.tls, state.cluster_key),
        )

    def _write(self, role: str, kind: str, keys: dict[str, object]) -> None:
        overrides = {**self._overrides.get(kind, {}), **self._overrides.get(role, {})}
        configs.write_config(self.config_path(role), keys, overrides)

    def _command(self, role: str) -> list[str]:
        return [*self.settings.wrappers.get(role, ()), *self._program(role)]

    def _program(self, role: str) -> list[str]:
        if role == ZOOKEEPER:
            return self._zookeeper_files.command()
        if role not in self.roles:
            raise LocalClusterError(f"there is no {role}; the roles are {', '.join(self.roles)}")
        module = "waltz_storage" if role.startswith("storage-") else "waltz_server"
        return [sys.executable, "-m", module, str(self.config_path(role))]

    async def _answers(self, role: str) -> bool:
        if role == ZOOKEEPER:
            return await is_serving(self.port(role, "client"))
        return await health.is_up(self.port(role, "http"))

    def _process(self, role: str) -> ManagedProcess:
        try:
            return self._processes[role]
        except KeyError:
            raise LocalClusterError(f"{role} was not started") from None

    def _raise_if_ended(self, roles: Iterable[str]) -> None:
        for role in roles:
            process = self._processes.get(role)
            if process is not None and process.exit_code is not None and not process.stopping:
                raise process.failure(f"ended with code {process.exit_code}")


def _number(role: str) -> int:
    return int(role.rsplit("-", 1)[1])
