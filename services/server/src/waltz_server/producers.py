"""Named producers for clients that do not see ZooKeeper: what such a client would do with the record of its
producer there, this server does for it, by the same rules (docs/protocol.md, named producers over servers;
ADR 38 and 39).

A request may be carried out although its client has given it up and asked another server meanwhile, so each
of them does nothing the second time: an epoch is raised from the one right before it, a producer is made
where there is none, marks only grow.

Requests wait in one line for a few workers, which bounds what ZooKeeper is asked at once; each is answered
within `ANSWER_SECONDS` of its arrival, or as soon as a worker is free after that. The line is bounded in
requests and in checkpoints, of living connections. A connection asks about one producer, not too often, and
has one write unanswered. A znode is watched once, however many connections watch the producer.

Owner of the state here: the loop; ZooKeeper is asked by the tasks of `run`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from waltz_cluster.errors import (
    ClusterError,
    ConfigError,
    IdsExhaustedError,
    SerializationError,
    ZnodeTooLargeError,
)
from waltz_cluster.producers import (
    EpochWentBackError,
    NewerEpochError,
    ProducerGoneError,
    ProducerRegistry,
    check_name,
)
from waltz_cluster.serializers import MAX_ID, Checkpoint, ProducerRecord
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
from waltz_protocol.messages.fields import CHECKPOINT_BYTES, CheckpointEntry
from waltz_protocol.messages.producers import (
    REQUESTS,
    ProducerCheckpointsRequest,
    ProducerCode,
    ProducerCreateRequest,
    ProducerEpochRequest,
    ProducerFindRequest,
    ProducerRequest,
    ProducerResponse,
    ProducerWatchRequest,
)
from waltz_protocol.types import ReqId
from waltz_server.partition.client import Client

log = structlog.get_logger(__name__)

_WRITES = ProducerCreateRequest | ProducerCheckpointsRequest
PRODUCER_TYPES = frozenset(request.TYPE for request in REQUESTS)
WORKERS = 8
"""Requests for which ZooKeeper is asked at once."""
MAX_WAITING = 10_000
"""Requests in the line, those to look at a watched producer again included."""
MAX_WAITING_CHECKPOINTS = 1 << 18
"""In the requests that are unanswered, some 200 bytes of memory for each; one request is always taken."""
MAX_WATCHERS = 32
"""Connections that watch one producer at a server: a new epoch is sent to all of them in one turn of the
loop. A producer has one living instance, or a few while one follows another."""
TOO_MANY = "too many requests about producers wait at this server"
ANSWER_SECONDS = 5.0
"""A client hears after this long that ZooKeeper has not answered, and asks another server."""
MAX_PRODUCERS = 10_000
"""In a cluster: no server makes more. (A client with a connection to ZooKeeper is not kept from it.)"""
MAX_FIELDS_BYTES = 512
"""Of a request without its checkpoints; a name has 100 bytes. What is longer is not decoded."""
MAX_CHECKPOINTS = 1 << 18
"""In a cluster, of all producers: beyond as many as have one for each partition no server makes another one.
All are in each export of the tree."""
BURST = 30
"""Requests that a connection may make at once, those that are refused included."""
REQUESTS_PER_SECOND = 2.0
"""That a connection may make for long; one that begins makes four, and one for each checkpoint."""


class ProducerStore(ProducerRegistry, Protocol):
    """Where the records are: `waltz_cluster.producers.ZooKeeperProducers`."""

    async def count(self) -> int:
        """How many there are."""
        ...

    async def raise_epoch(self, name: str, to: int | None = None) -> ProducerRecord:
        """To this one and no other: NewerEpochError, EpochWentBackError, ProducerGoneError."""
        ...


@dataclass(slots=True)
class _Asker:
    """What is known of a connection. `name`: empty until it has asked about one that can be."""

    allowance: float
    asked_at: float
    name: str = ""
    waiting: set[_Job] = field(default_factory=set)
    """Its requests in the line."""
    writes: bool = False
    """One with checkpoints is unanswered."""


@dataclass(slots=True)
class _Watched:
    """A producer that is watched.

    Invariant: while `armed`, a watch of ZooKeeper calls back, and there is no other one; `epoch` is what it
    was when that was set.
    """

    watchers: dict[Client, ReqId] = field(default_factory=dict)
    unanswered: set[Client] = field(default_factory=set)
    epoch: int = -1
    armed: bool = False
    in_line: bool = False
    reading: bool = False
    fired: bool = False
    """While it was read."""


@dataclass(eq=False, slots=True)
class _Job:
    client: Client
    request: ProducerRequest
    name: str
    due: float

    @property
    def checkpoints(self) -> tuple[CheckpointEntry, ...]:
        return checkpoints_in(self.request)


class ProducerDesk:
    """See the module. `handle` and `forget` are called by connections."""

    def __init__(self, store: ProducerStore, num_partitions: int) -> None:
        self._store = store
        self._num_partitions = num_partitions
        self._max_bytes = MAX_FIELDS_BYTES + num_partitions * CHECKPOINT_BYTES
        self._askers: dict[Client, _Asker] = {}
        self._watched: dict[str, _Watched] = {}
        self._line: OrderedDict[_Job | str, None] = OrderedDict()
        """Requests, and names of producers to look at again."""
        self._arrived = asyncio.Event()
        self._checkpoints = 0
        """In the requests that are in the line or being carried out."""

    # -- from connections ------------------------------------------------------------------------------------

    def handle(self, client: Client, body: memoryview) -> None:
        """One message of version 5 or later; ProtocolError. Nothing is decoded of what asks too often, or is
        longer than any request of this cluster: the loop serves appends meanwhile."""
        asker = self._asker(client)
        req_id = ReqId.unpack(body, 1)
        if asker.allowance < 1:
            about = f"the producer {asker.name}" if asker.name else "a producer"
            text = (
                f"the client asks too often about {about}: more than {BURST} times at once, or "
                f"{REQUESTS_PER_SECOND:g} times a second for long"
            )
            _answer(client, req_id, ProducerCode.LATER, text=text)
            return
        asker.allowance -= 1
        if len(body) > self._max_bytes:
            text = f"a request about a producer has {len(body)} bytes, more than {self._max_bytes}"
            _answer(client, req_id, ProducerCode.REFUSED, text=text)
            return
        request = CLIENT.decode(body, client.version)
        if not isinstance(request, REQUESTS):
            raise ProtocolError(f"{type(request).__name__} is not for servers")
        try:
            name = check_name(request.name or "")
            if (asker.name or name) != name:
                raise ConfigError(
                    f"a connection asks about one producer, and this one has asked about {asker.name}"
                )
            asker.name = name
            check_fields(request, self._num_partitions)
        except ConfigError as error:
            _answer(client, req_id, ProducerCode.REFUSED, text=str(error))
            return
        if isinstance(request, ProducerWatchRequest):
            self._watch(client, req_id, name)
        else:
            due = asyncio.get_running_loop().time() + ANSWER_SECONDS
            self._wait(asker, _Job(client, request, name, due))

    def _wait(self, asker: _Asker, job: _Job) -> None:
        """Into the line, if it may."""
        writes = isinstance(job.request, _WRITES)
        size = len(job.checkpoints)
        if writes and asker.writes:
            text = f"the connection has an unanswered write to the producer {job.name}"
        elif len(self._line) >= MAX_WAITING or (
            self._checkpoints and self._checkpoints + size > MAX_WAITING_CHECKPOINTS
        ):
            text = TOO_MANY
        else:
            asker.writes = asker.writes or writes
            asker.waiting.add(job)
            self._checkpoints += size
            self._join_line(job)
            return
        _answer(job.client, job.request.req_id, ProducerCode.LATER, text=text)

    def _join_line(self, job: _Job | str) -> None:
        self._line[job] = None
        self._arrived.set()

    def _asker(self, client: Client) -> _Asker:
        """With the allowance that it has now."""
        now = asyncio.get_running_loop().time()
        asker = self._askers.get(client)
        if asker is None:
            asker = self._askers[client] = _Asker(BURST, now)
        asker.allowance = min(BURST, asker.allowance + (now - asker.asked_at) * REQUESTS_PER_SECOND)
        asker.asked_at = now
        return asker

    def forget(self, client: Client) -> None:
        """The connection has gone. What it asked for leaves the line, undone, if no worker has it yet."""
        asker = self._askers.pop(client, None)
        for job in asker.waiting if asker is not None else ():
            del self._line[job]
            self._checkpoints -= len(job.checkpoints)
        watched = self._watched.get(asker.name) if asker is not None else None
        if asker is not None and watched is not None:
            watched.watchers.pop(client, None)
            watched.unanswered.discard(client)
            self._drop_if_idle(asker.name, watched)

    # -- watching --------------------------------------------------------------------------------------------

    def _watch(self, client: Client, req_id: ReqId, name: str) -> None:
        if len(self._line) >= MAX_WAITING:
            _answer(client, req_id, ProducerCode.LATER, text=TOO_MANY)
            return
        watched = self._watched.setdefault(name, _Watched())
        if client not in watched.watchers and len(watched.watchers) >= MAX_WATCHERS:
            text = f"{MAX_WATCHERS} connections watch the producer {name} at this server already"
            _answer(client, req_id, ProducerCode.LATER, text=text)
            return
        watched.watchers[client] = req_id
        if watched.armed and not watched.reading:
            _answer(client, req_id, ProducerCode.DONE, epoch=watched.epoch)
            return
        watched.unanswered.add(client)
        self._look_again(name, watched)

    def _look_again(self, name: str, watched: _Watched) -> None:
        if not watched.in_line and not watched.reading:
            watched.in_line = True
            self._join_line(name)

    def _changed(self, name: str) -> None:
        """The watch of ZooKeeper has fired."""
        watched = self._watched.get(name)
        if watched is None:
            return
        watched.armed = False
        watched.fired = True
        if watched.watchers:
            self._look_again(name, watched)
        self._drop_if_idle(name, watched)

    def _drop_if_idle(self, name: str, watched: _Watched) -> None:
        """A watch that is set stays until it has fired: else each connection that comes and goes would leave
        one behind."""
        if not (watched.watchers or watched.armed or watched.in_line or watched.reading):
            self._watched.pop(name, None)

    async def _look(self, name: str) -> None:
        """Read the epoch of a watched producer, and inform those who do not know it."""
        watched = self._watched[name]
        watched.in_line = False
        if not watched.watchers:
            self._drop_if_idle(name, watched)
            return
        watched.reading, watched.fired = True, False
        code, epoch, text = ProducerCode.DONE, -1, None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                epoch = await self._store.newest_epoch(name, lambda: self._changed(name))
        except ProducerGoneError:
            code = ProducerCode.ABSENT
        except (ClusterError, TimeoutError) as error:
            code, text = ProducerCode.LATER, _why(error)
        finally:
            watched.reading = False
        if code is ProducerCode.DONE:
            watched.armed = not watched.fired
            informed = list(watched.watchers if epoch != watched.epoch else watched.unanswered)
            watched.epoch = epoch
        else:
            informed = list(watched.watchers)
        for client in informed:
            _answer(client, watched.watchers[client], code, epoch=epoch, text=text)
        watched.unanswered.clear()
        if code is not ProducerCode.DONE:
            watched.watchers.clear()  # they ask again
        elif watched.fired:
            self._look_again(name, watched)
        self._drop_if_idle(name, watched)

    # -- asking ZooKeeper ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry requests out, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while not self._line:
                self._arrived.clear()
                await self._arrived.wait()
            job, _ = self._line.popitem(last=False)
            try:
                if isinstance(job, str):
                    await self._look(job)
                else:
                    await self._have_carried_out(job)
            except Exception:
                log.exception("a request about a named producer failed")

    async def _have_carried_out(self, job: _Job) -> None:
        if asker := self._askers.get(job.client):
            asker.waiting.discard(job)
        try:
            if not job.client.closed:
                await self._carry_out(job)
        finally:
            self._checkpoints -= len(job.checkpoints)
            if asker and isinstance(job.request, _WRITES):
                asker.writes = False

    async def _carry_out(self, job: _Job) -> None:
        code, epoch, text = ProducerCode.DONE, -1, None
        record: ProducerRecord | None = None
        try:
            if asyncio.get_running_loop().time() >= job.due:
                raise TimeoutError
            async with asyncio.timeout_at(job.due):
                record = await self._ask(job.name, job.request)
        except ProducerGoneError:
            code = ProducerCode.ABSENT
        except (NewerEpochError, EpochWentBackError) as other:
            code, epoch = ProducerCode.OTHER_EPOCH, other.epoch
        except (IdsExhaustedError, SerializationError, ConfigError, ZnodeTooLargeError) as error:
            code, text = ProducerCode.REFUSED, str(error)
        except (ClusterError, TimeoutError) as error:
            code, text = ProducerCode.LATER, _why(error)
        _answer(job.client, job.request.req_id, code, record, epoch, text)

    async def _ask(self, name: str, request: ProducerRequest) -> ProducerRecord | None:
        """ConfigError when there are too many, ProducerGoneError, and what the store raises."""
        match request:
            case ProducerFindRequest():
                record = await self._store.find(name)
                if record is None:
                    raise ProducerGoneError(name)
                return record
            case ProducerCreateRequest(client_id=client_id, checkpoints=entries):
                most = max(1, min(MAX_PRODUCERS, MAX_CHECKPOINTS // max(1, self._num_partitions)))
                if await self._store.count() >= most and await self._store.find(name) is None:
                    raise ConfigError(
                        f"the cluster has {most} named producers, and no server makes another one: {name} "
                        "is not made; names are for applications, not for their processes or jobs"
                    )
                await self._store.create(name, ProducerRecord(client_id, 0, checkpoints_of(entries)))
            case ProducerEpochRequest(epoch=epoch):
                return await self._store.raise_epoch(name, epoch)
            case ProducerCheckpointsRequest(epoch=epoch, checkpoints=entries):
                await self._store.write_checkpoints(name, epoch, checkpoints_of(entries))
        return None


def check_fields(request: ProducerRequest, num_partitions: int) -> None:
    """ConfigError for what no record can have."""
    match request:
        case ProducerEpochRequest(epoch=number) | ProducerCheckpointsRequest(epoch=number):
            pass
        case ProducerCreateRequest(client_id=number):
            pass
        case _:
            return
    if not 0 < number <= MAX_ID:
        raise ConfigError(f"client ids and epochs of producers begin with 1, and {number} is neither")
    seen: set[int] = set()
    for partition_id, origin, mark, sequence in checkpoints_in(request):
        if partition_id in seen or not 0 <= partition_id < num_partitions:
            raise ConfigError(f"checkpoints of partition {partition_id}, where there are {num_partitions}")
        if not -1 <= origin <= mark or sequence < -1:
            raise ConfigError(
                f"a checkpoint with origin {origin}, mark {mark} and sequence number {sequence}"
            )
        seen.add(partition_id)


def checkpoints_in(request: ProducerRequest) -> tuple[CheckpointEntry, ...]:
    """None in requests that write none."""
    if isinstance(request, _WRITES):
        return request.checkpoints
    return ()


def checkpoints_of(entries: tuple[CheckpointEntry, ...]) -> Mapping[int, Checkpoint]:
    return {partition_id: Checkpoint(*rest) for partition_id, *rest in entries}


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"ZooKeeper did not answer within {ANSWER_SECONDS:g} s"
    return f"ZooKeeper gives no answer now: {error}"


def _answer(
    client: Client,
    req_id: ReqId,
    code: ProducerCode,
    record: ProducerRecord | None = None,
    epoch: int = -1,
    text: str | None = None,
) -> None:
    client_id, entries = -1, tuple[CheckpointEntry, ...]()
    if record is not None:
        client_id, epoch = record.client_id, record.epoch
        entries = tuple(CheckpointEntry(one, *known) for one, known in sorted(record.checkpoints.items()))
    client.send(
        CLIENT.encode(ProducerResponse(req_id, code, client_id, epoch, entries, text), client.version)
    )
