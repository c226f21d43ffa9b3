"""Discovery by a list of servers: implements `discovery.Discovery` without ZooKeeper.

Owner of the connection: one task, which watches one server and changes to another one when that ends, is out
of contact or behind (`sources` decides). What was followed last stays in use meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from waltz_client._internal.directory.asking import Question, ask, ask_another
from waltz_client._internal.directory.producers import DirectoryProducers
from waltz_client._internal.directory.session import DirectorySession
from waltz_client._internal.directory.sources import Judgement, Sources
from waltz_client._internal.link import HEALTHY_SECONDS, LinkSettings
from waltz_client.errors import ConnectError
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.backoff import Backoff, Random
from waltz_protocol.directory import FIRST_VERSION, Directory
from waltz_protocol.errors import WaltzProtocolError
from waltz_protocol.messages.directory import ClientIdRequest, ClientIdResponse
from waltz_protocol.messages.fields import Message
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
ASK_SECONDS = 7.0
"""For an answer to a request for a client id, or about a producer: longer than a server waits for
ZooKeeper."""
ASK_PAUSE_SECONDS = (0.1, 2.0)
"""Between two such requests; the pauses grow."""
T = TypeVar("T")

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
        self._watched: Endpoint | None = None
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
    def cluster_key(self) -> UUID:
        """That of every directory that is followed."""
        return self.cluster_params.key

    @property
    def producers(self) -> DirectoryProducers:
        """The named producers of the cluster, over any of its servers."""
        return DirectoryProducers(self)

    async def new_client_id(self) -> int:
        """An id no client ever had, from the server that is watched, or else from another one; ConnectError
        with the reasons when there is none within the time that entering may take."""
        return await self.ask_any(Question(ClientIdRequest, "client id"), _client_id_of)

    async def ask_any(self, question: Question, accept: Callable[[Message], T | str]) -> T:
        """Ask the server that is watched, then others, again and again, until `accept` takes an answer
        (instead of a reason why it doesn't); ConnectError with the reasons when that takes longer than
        entering may. A request that got no answer may still be carried out, and later than this one ends."""
        reasons: dict[str, None] = {}
        pauses = Backoff(*ASK_PAUSE_SECONDS, self._random)
        try:
            async with asyncio.timeout(self._entry_seconds + ASK_SECONDS):
                while True:
                    for server in (None, *self._not_watched()):
                        answer = await self._ask(server, question)
                        accepted = answer if isinstance(answer, str) else accept(answer)
                        if not isinstance(accepted, str):
                            return accepted
                        reasons[accepted] = None
                        await asyncio.sleep(pauses.next_seconds())
        except TimeoutError:
            said = "; ".join((*reasons, self._sources.reasons()))
            raise ConnectError(f"no server gave this client a {question.what}: {said}") from None

    def _not_watched(self) -> list[Endpoint]:
        others = [server for server in self._sources.known() if server != self._watched]
        return sorted(others, key=lambda _: self._random.random())

    async def _ask(self, server: Endpoint | None, question: Question) -> Message | str:
        """None: the server that is watched, on the same connection."""
        if server is None:
            return await ask(await self.watched_session(), question, ASK_SECONDS)
        key = self._sources.cluster_key
        return await ask_another(server, key, self._settings, self._attempt_seconds, question, ASK_SECONDS)

    async def watched_session(self) -> DirectorySession:
        """The connection to the server that is watched, once there is one that can be used."""
        while True:
            session = self._session
            known = self._judgement is not None and self._judgement is not Judgement.FOREIGN
            if session is not None and known and not session.closed.is_set():
                return session
            self._progress.clear()
            await self._progress.wait()

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
        loop = asyncio.get_running_loop()
        while True:
            server = self._watched = self._sources.next()
            started = loop.time()
            try:
                await self._watch(server)
            except Exception as error:  # whatever it is, what is followed must not stay as it is for good
                log.exception("asking server %s failed", server, extra={"server": str(server)})
                self._sources.failed(server, f"{type(error).__name__}: {error}")
            self._session = self._judgement = None
            self._report(server)
            self._progress.set()
            if self._judged_well and loop.time() - started >= HEALTHY_SECONDS:
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
        due = asyncio.get_running_loop().time() + self._attempt_seconds
        try:
            async with asyncio.timeout_at(due):  # the Hello and the first directory have no more
                channel = await settings.connect(
                    server, settings.channel, session, settings.tls, self._attempt_seconds
                )
        except TimeoutError:
            sources.failed(server, f"no answer within {self._attempt_seconds:g} s")
            return
        except (WaltzProtocolError, OSError) as error:
            sources.failed(server, str(error).removeprefix(f"cannot connect to {server}: "))
            return
        try:
            if not session.watch(channel):
                self._too_old(server, channel.version)
                return
            self._session = session
            self._progress.set()
            await self._stay(server, session, due)
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

    async def _stay(self, server: Endpoint, session: DirectorySession, due: float) -> None:
        """`due`: when the first directory has to be there."""
        loop = asyncio.get_running_loop()
        before: Judgement | None = None
        while not session.closed.is_set():
            judgement = self._judgement
            if judgement is Judgement.FOREIGN:
                return
            if judgement is not before:
                due, before = self._leave_at(judgement), judgement
            seconds = due - loop.time()
            try:
                async with asyncio.timeout(seconds if judgement is None else min(seconds, PING_SECONDS)):
                    await self._changed.wait()
            except TimeoutError:
                if loop.time() >= due:
                    if judgement is None:
                        self._sources.failed(
                            server, f"it sent no directory within {self._attempt_seconds:g} s"
                        )
                    return
                if not session.heard:
                    self._sources.failed(server, f"it gave no sign of life for {PING_SECONDS:g} s")
                    return
                session.ping()
            else:
                self._changed.clear()

    def _leave_at(self, judgement: Judgement | None) -> float:
        """When to ask another server, if this one says nothing else."""
        now = asyncio.get_running_loop().time()
        if judgement is Judgement.FOLLOW:
            self._judged_well = True
            self._rechecks.reset()
            return math.inf
        if self._sources.round_over:
            return now + self._rechecks.next_seconds()
        return now + LEAVE_SECONDS * self._random.random()

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


def _client_id_of(answer: Message) -> int | str:
    if isinstance(answer, ClientIdResponse) and answer.client_id > 0:
        return answer.client_id
    return (answer.text if isinstance(answer, ClientIdResponse) else None) or "a server gave no client id"
