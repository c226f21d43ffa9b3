"""The directory of the cluster for clients that do not see ZooKeeper, and ids for them (docs/protocol.md,
version 5, directory).

What is known comes from the cluster manager of this process: its watches are the only ones, however many
clients there are. A change is encoded once, the same bytes go to all who watch, in bounded turns of the loop
(`aio.turns`); changes that follow each other faster than `COALESCE_SECONDS` are sent as one. A client that
does not read is owed the newest directory and nothing else, so what waits for it does not grow.

A directory may be out of date, and is harmless then: a server executes no request of a smaller generation
than its own, and fences keep an owner that was replaced from committing (docs/safety.md, B and D4).

Owner of the state here: the loop; ids are taken by the task `run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from waltz_cluster.errors import ClusterError
from waltz_protocol.aio.turns import QUEUED, Turns
from waltz_protocol.codec import CLIENT
from waltz_protocol.directory import FIRST_VERSION, Directory, encode_directory, not_listed
from waltz_protocol.messages.directory import ClientIdRequest, ClientIdResponse, DirectoryRequest
from waltz_protocol.types import Endpoint, ReqId
from waltz_server.partition.client import Client

log = structlog.get_logger(__name__)

DIRECTORY_TYPES = frozenset((DirectoryRequest.TYPE, ClientIdRequest.TYPE))
COALESCE_SECONDS = 0.05
"""Between two directories that are sent to everybody."""
PUSH_UNITS = 30
"""Of work (see `aio.turns`) to send a directory to one client, and one more for each half KiB."""
MAX_IDS_AT_ONCE = 1000
"""Taken from ZooKeeper's counter in one write, for all who have asked meanwhile."""
MAX_REPORTED = 10
"""Servers that a log line names."""
MAX_ASKING = 10_000
"""Connections that wait for an id."""
ID_SECONDS = 5.0
"""A client hears after this long that ZooKeeper gave none, and asks another server."""

TakeIds = Callable[[int, float], Awaitable[range]]


class WatchingClient(Client, Protocol):
    """A connection as the desk sees it."""

    def dismiss(self, reason: str) -> None:
        """End the connection because the server leaves."""


class DirectoryDesk:
    """See the module. `update` is called with what the cluster manager says, `handle` by connections.

    Invariant: a connection gets one id, however often it asks: who wants another one connects again.
    """

    def __init__(self, turns: Turns, take_ids: TakeIds) -> None:
        """`take_ids`: count and seconds: at most so many new client ids, within that time; ClusterError."""
        self.encoded = 0
        """Directories that were put into bytes so far."""
        self._turns = turns
        self._take_ids = take_ids
        self._directory: Directory | None = None
        self._frames: tuple[bytes, ...] = ()
        self._left_out: tuple[Endpoint, ...] = ()
        self._units = PUSH_UNITS
        self._watchers: dict[WatchingClient, None] = {}
        self._owed: dict[WatchingClient, None] = {}
        """Who gets the newest directory next."""
        self._behind: dict[Client, WatchingClient] = {}
        """Who gets it when its connection takes something again."""
        self._in_line = False
        self._timer: asyncio.TimerHandle | None = None
        self._published_at = -COALESCE_SECONDS
        self._ids: dict[WatchingClient, int] = {}
        self._asking: dict[WatchingClient, ReqId] = {}
        self._wanted = asyncio.Event()

    @property
    def watchers(self) -> int:
        """Connections that watch."""
        return len(self._watchers)

    # -- from the cluster manager ----------------------------------------------------------------------------

    def update(self, directory: Directory) -> None:
        """This is what is known now; everybody who watches gets it."""
        if directory == self._directory:
            return
        self._directory = directory
        if self._timer is None:
            loop = asyncio.get_running_loop()
            due = self._published_at + COALESCE_SECONDS
            if loop.time() >= due:
                self._publish()
            else:
                self._timer = loop.call_at(due, self._publish)

    def _publish(self) -> None:
        self._timer = None
        directory = self._directory
        if directory is None:
            return
        self._published_at = asyncio.get_running_loop().time()
        self._report(not_listed(directory.servers))
        self._frames = encode_directory(directory, FIRST_VERSION)
        self._units = PUSH_UNITS + (sum(map(len, self._frames)) >> 9)
        self.encoded += 1
        self._owed.update((client, None) for client in self._watchers if client not in self._behind)
        self._get_in_line()

    def _report(self, left_out: tuple[Endpoint, ...]) -> None:
        """A line when there are other servers than before that no directory can name."""
        if left_out and left_out != self._left_out:
            log.warning(
                "servers with an advertised address that nobody can connect to are left out of the directory",
                servers=[f"{endpoint.host!r}:{endpoint.port}" for endpoint in left_out[:MAX_REPORTED]],
            )
        self._left_out = left_out

    def dismiss(self) -> None:
        """The server leaves: who watches asks another one now, and holds up nobody."""
        for client in list(self._watchers):
            client.dismiss("the server leaves")

    def close(self) -> None:
        """Send nothing any longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- from connections ------------------------------------------------------------------------------------

    def handle(self, client: WatchingClient, body: memoryview) -> None:
        """One message of version 5 or later; ProtocolError."""
        message = CLIENT.decode(body, client.version)
        if isinstance(message, ClientIdRequest):
            self._new_id(client, message.req_id)
            return
        self._watchers[client] = None
        if self._frames and client not in self._behind:
            self._owed[client] = None
            self._get_in_line()

    def forget(self, client: WatchingClient) -> None:
        """The connection has gone. An id that it did not wait for is wasted."""
        self._watchers.pop(client, None)
        self._owed.pop(client, None)
        self._behind.pop(client, None)
        self._asking.pop(client, None)
        self._ids.pop(client, None)

    # -- sending ---------------------------------------------------------------------------------------------

    def _get_in_line(self) -> None:
        if self._owed and not self._in_line:
            self._in_line = True
            self._turns.join(self, QUEUED)

    def work(self, units: int) -> int:
        """Called by `turns`: send the newest directory to some of those who are owed it."""
        self._in_line = False
        spent = 0
        while self._owed and spent < units:
            client = next(iter(self._owed))
            del self._owed[client]
            spent += self._units
            if client.writable:
                client.send(*self._frames)
            else:
                self._behind[client] = client
                client.park(self)
        self._get_in_line()
        return spent

    def client_writable(self, client: Client) -> None:
        """See `partition.client.Parked`."""
        behind = self._behind.pop(client, None)
        if behind is not None:
            self._owed[behind] = None
            self._get_in_line()

    # -- ids -------------------------------------------------------------------------------------------------

    def _new_id(self, client: WatchingClient, req_id: ReqId) -> None:
        given = self._ids.get(client)
        if given is not None:
            self._answer(client, req_id, given)
        elif client not in self._asking and len(self._asking) >= MAX_ASKING:
            self._answer(client, req_id, -1, "too many clients wait for an id at this server")
        else:
            self._asking[client] = req_id
            self._wanted.set()

    def _answer(self, client: WatchingClient, req_id: ReqId, client_id: int, text: str | None = None) -> None:
        client.send(CLIENT.encode(ClientIdResponse(req_id, client_id, text), client.version))

    async def run(self) -> None:
        """Take ids for those who ask, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            asking = list(self._asking)[:MAX_IDS_AT_ONCE]
            if not asking:
                continue
            ids, problem, failed = range(0), "", False
            try:
                async with asyncio.timeout(ID_SECONDS):  # a frozen ZooKeeper answers later, or not at all
                    ids = await self._take_ids(len(asking), ID_SECONDS)
            except (ClusterError, TimeoutError) as error:
                failed, problem = True, str(error) or f"it did not answer within {ID_SECONDS:g} s"
                log.warning("no client ids could be taken", clients=len(asking), reason=problem)
                asking = list(self._asking)  # who asked meanwhile has waited for the same
            given = iter(ids)
            for client in asking:
                client_id = next(given, None)
                if client_id is None and not failed:
                    break  # the counter had fewer left; the next round says so
                req_id = self._asking.pop(client, None)
                if req_id is None:
                    continue
                if client_id is None:
                    self._answer(client, req_id, -1, f"ZooKeeper gave no client id: {problem}")
                else:
                    self._ids[client] = client_id
                    self._answer(client, req_id, client_id)
            if self._asking:
                self._wanted.set()
