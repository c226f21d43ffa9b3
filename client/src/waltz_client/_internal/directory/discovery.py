"""Discovery by a list of servers: implements `discovery.Discovery` without ZooKeeper.

Owner of the connection: one task, which watches one server and changes to another one when that ends, is out
of contact or behind (`sources` decides). What was followed last stays in use meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from uuid import UUID

from waltz_client._internal.directory.session import DirectorySession
from waltz_client._internal.directory.sources import Judgement, Sources
from waltz_client._internal.link import LinkSettings
from waltz_client.errors import ConnectError
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.backoff import Backoff, Random
from waltz_protocol.directory import FIRST_VERSION, Directory
from waltz_protocol.errors import WaltzProtocolError
from waltz_protocol.types import Endpoint, Generation, PartitionId

log = logging.getLogger(__name__)

ATTEMPT_SECONDS = 3.0
"""For a server to be connected to and to send its first directory; less when `client.connectTimeout` is."""
LEAVE_SECONDS = 2.0
"""How long, at most, a client stays with a server that does not satisfy while there are others to ask: spread
at random, so that the clients of a server do not leave it in one moment."""
RECHECK_SECONDS = (2.0, 120.0)
"""Before all are asked again when none satisfies; the pauses grow."""
PING_SECONDS = 4.0
"""Between two pings to the server that is watched, and for the answer: one that is frozen or cut off pushes
no change, and nothing else shows it for a minute."""
ID_SECONDS = 7.0
"""For an answer to a request for a client id: longer than a server waits for ZooKeeper."""

Endpoints = dict[Endpoint, dict[PartitionId, Generation]]
Listener = Callable[[Endpoints], None]


@dataclass(frozen=True, slots=True)
class ListedCluster:
    """What a directory says about the cluster."""

    name: str
    num_partitions: int
    key: UUID


class DirectoryDiscovery:
    """`async with DirectoryDiscovery(...) as discovery`: entering waits for the first directory."""

    cluster_params: ListedCluster

    def __init__(
        self,
        seeds: Sequence[Endpoint],
        settings: LinkSettings,
        random: Random,
        cluster_key: UUID | None = None,
    ) -> None:
        attempt = min(ATTEMPT_SECONDS, settings.connect_timeout_seconds)
        self._settings = settings
        self._attempt_seconds = attempt
        self._entry_seconds = max(settings.connect_timeout_seconds, 2 * attempt * len(seeds))
        self._random = random
        self._sources = Sources(seeds, random, cluster_key)
        self._backoff = Backoff(settings.initial_backoff_seconds, settings.max_backoff_seconds, random)
        self._rechecks = Backoff(*RECHECK_SECONDS, random)
        self._listeners: list[Listener] = []
        self._reported: dict[Endpoint, str] = {}
        self._session: DirectorySession | None = None
        self._judgement: Judgement | None = None
        """Of the newest directory of the present session."""
        self._judged_well = False
        """The server that is watched, or was last, has satisfied."""
        self._changed = asyncio.Event()
        """The session has brought a directory, or ended."""
        self._progress = asyncio.Event()
        """For who enters: something was learned."""
        self._task: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._task = spawn(self._run(), "waltz client: directory")
        try:
            directory = await self._first()
        except BaseException:
            await self._stop()
            raise
        self.cluster_params = ListedCluster(
            directory.cluster_name, directory.num_partitions, directory.cluster_key
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _first(self) -> Directory:
        sources = self._sources
        try:
            async with asyncio.timeout(self._entry_seconds):
                while sources.followed is None and not sources.hopeless:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            pass
        if sources.followed is None:
            raise ConnectError(
                f"no server of `servers` gave the directory of its cluster: {sources.reasons()}"
            )
        return sources.followed

    # -- Discovery -------------------------------------------------------------------------------------------

    @property
    def producers(self) -> None:
        """Named producers are kept in ZooKeeper, which this client does not see."""

    async def new_client_id(self) -> int:
        """An id no client ever had, from the server that is watched, or else from another one; ConnectError
        with the reasons when there is none within the time that entering may take."""
        reasons: dict[str, None] = {}
        try:
            async with asyncio.timeout(self._entry_seconds + ID_SECONDS):
                while True:
                    session = self._session
                    if session is None or session.closed.is_set():
                        self._progress.clear()
                        await self._progress.wait()
                        continue
                    reason = await self._ask_for_id(session)
                    if isinstance(reason, int):
                        return reason
                    reasons[reason] = None
                    session.close(reason)
                    await session.closed.wait()
        except TimeoutError:
            said = "; ".join((*reasons, self._sources.reasons()))
            raise ConnectError(f"no server gave this client an id: {said}") from None

    async def _ask_for_id(self, session: DirectorySession) -> int | str:
        try:
            async with asyncio.timeout(ID_SECONDS):
                response = await session.new_client_id()
        except TimeoutError:
            return f"a server gave no client id within {ID_SECONDS:g} s"
        if response is None:
            return f"the connection ended before there was a client id: {session.close_reason}"
        return response.client_id if response.client_id > 0 else response.text or "a server gave no client id"

    def add_endpoints_listener(self, listener: Listener) -> Callable[[], None]:
        """Call the listener now and on every change; returns a function that removes it."""
        self._listeners.append(listener)
        if self._sources.followed is not None:
            self._tell(listener, self._sources.followed)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    def _tell(self, listener: Listener, directory: Directory) -> None:
        try:
            listener({endpoint: dict(owned) for endpoint, owned in directory.servers.items()})
        except Exception:
            log.exception("an endpoints listener failed", extra={"version": directory.version})

    # -- watching --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            server = self._sources.next()
            await self._watch(server)
            self._session = self._judgement = None
            self._report(server)
            self._progress.set()
            if self._judged_well:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.next_seconds())

    def _report(self, server: Endpoint) -> None:
        """A line when a server does not satisfy any longer, or for another reason than before."""
        reason = self._sources.reason(server)
        if reason and self._reported.get(server) != reason:
            log.warning("server %s: %s; asking another one", server, reason, extra={"server": str(server)})
        known = self._sources.known()
        self._reported = {one: why for one, why in self._reported.items() if one in known} | {server: reason}

    async def _watch(self, server: Endpoint) -> None:
        """Until the connection has ended, or another server is to be asked."""
        self._judged_well = False
        self._changed.clear()
        session = DirectorySession(
            lambda directory: self._received(server, session, directory), self._changed.set
        )
        settings, sources = self._settings, self._sources
        try:
            channel = await settings.connect(
                server, settings.channel, session, settings.tls, self._attempt_seconds
            )
        except (WaltzProtocolError, OSError) as error:
            sources.failed(server, str(error).removeprefix(f"cannot connect to {server}: "))
            return
        try:
            if not session.watch(channel):
                self._too_old(server, channel.version)
                return
            self._session = session
            self._progress.set()
            await self._stay(server, session)
            if session.closed.is_set():
                sources.failed(server, f"the connection ended: {session.close_reason}")
        finally:
            channel.close("the client watches another server, or ends")

    def _too_old(self, server: Endpoint, version: int) -> None:
        reason = (
            f"it speaks version {version} of the protocol, directories need version {FIRST_VERSION}: "
            "a server of release 0.13.2 has none, give zookeeper.connectString there"
        )
        self._sources.failed(server, reason, hopeless=True)

    async def _stay(self, server: Endpoint, session: DirectorySession) -> None:
        while not session.closed.is_set():
            judgement = self._judgement
            if judgement is Judgement.FOREIGN:
                return
            seconds: float
            if judgement is None:
                seconds = self._attempt_seconds
            elif judgement is not Judgement.FOLLOW:
                alone = self._sources.round_over
                seconds = self._rechecks.next_seconds() if alone else LEAVE_SECONDS * self._random.random()
            else:
                self._judged_well = True
                self._rechecks.reset()
                seconds = PING_SECONDS
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                if judgement is Judgement.FOLLOW and session.heard:
                    session.ping()
                    continue
                if judgement is None:
                    self._sources.failed(server, f"it sent no directory within {seconds:g} s")
                elif judgement is Judgement.FOLLOW:
                    self._sources.failed(server, f"it gave no sign of life for {seconds:g} s")
                return
            self._changed.clear()

    def _received(self, server: Endpoint, session: DirectorySession, directory: Directory) -> None:
        if session is not self._session:
            return
        before = self._sources.followed
        judgement = self._judgement = self._sources.judge(server, directory)
        if judgement.follows and (before is None or before.servers != directory.servers):
            for listener in tuple(self._listeners):
                self._tell(listener, directory)
        self._changed.set()
        self._progress.set()
