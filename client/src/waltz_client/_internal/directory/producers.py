"""Named producers over a list of servers: implements `waltz_cluster.producers.ProducerRegistry` without
ZooKeeper (docs/protocol.md, named producers over servers; the server's side is `waltz_server.producers`).

A request whose answer was lost is sent again, mostly to another server, and the first one may be carried out
later than that. Both do no harm: all requests but those for an epoch say the same when they are repeated, and
an epoch is asked for by its number. So at most one of two requests for it is carried out, none of them once a
larger one is there, and whoever finds it taken (perhaps by its own first request) asks for the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from waltz_client._internal.directory.asking import Question
from waltz_client._internal.directory.session import DirectorySession
from waltz_client.errors import ConfigError
from waltz_cluster.errors import ConnectionLostError, IdsExhaustedError
from waltz_cluster.producers import ProducerGoneError, check_epoch
from waltz_cluster.serializers import MAX_ID, Checkpoint, ProducerRecord
from waltz_protocol.messages.fields import CheckpointEntry, Message
from waltz_protocol.messages.producers import (
    ProducerCheckpointsRequest,
    ProducerCode,
    ProducerCreateRequest,
    ProducerEpochRequest,
    ProducerFindRequest,
    ProducerResponse,
    ProducerWatchRequest,
)

T = TypeVar("T")
WATCH_SECONDS = 7.0
"""For a server to be there that is watched, and for its first answer: longer than it waits for ZooKeeper."""


class Servers(Protocol):
    """What is needed of `discovery.DirectoryDiscovery`."""

    async def ask_any(self, question: Question, accept: Callable[[Message], T | str]) -> T:
        """The answer of any server that `accept` takes; ConnectError."""
        ...

    async def watched_session(self) -> DirectorySession:
        """The connection to the server that is watched."""
        ...


class DirectoryProducers:
    """See the module, and `ProducerRegistry`."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def find(self, name: str) -> ProducerRecord | None:
        """See `ProducerRegistry`."""
        answer = await self._ask(Question(lambda req_id: ProducerFindRequest(req_id, name), _what(name)))
        return None if answer.code == ProducerCode.ABSENT else _record_of(answer)

    async def create(self, name: str, record: ProducerRecord) -> None:
        """See `ProducerRegistry`. ConfigError when the servers make no more producers."""
        entries = _entries(record.checkpoints)
        await self._ask(
            Question(
                lambda req_id: ProducerCreateRequest(req_id, name, record.client_id, entries), _what(name)
            )
        )

    async def raise_epoch(self, name: str) -> ProducerRecord:
        """See `ProducerRegistry`, and the module."""
        record = await self.find(name)
        epoch = 0 if record is None else record.epoch
        while True:
            if epoch >= MAX_ID:
                raise IdsExhaustedError(f"producer {name}: all {MAX_ID} epochs have been given out")
            answer = await self._ask(_epoch(name, epoch + 1))
            if answer.code == ProducerCode.DONE:
                return _record_of(answer)
            _check_there(name, answer)
            epoch = answer.epoch

    async def newest_epoch(self, name: str, changed: Callable[[], None]) -> int:
        """See `ProducerRegistry`: the server that is watched says it, and `changed` is also called when the
        connection to that one ends."""
        try:
            async with asyncio.timeout(WATCH_SECONDS):
                session = await self._servers.watched_session()
                answer = await session.watch_producer(
                    lambda req_id: ProducerWatchRequest(req_id, name), changed
                )
        except TimeoutError:
            raise ConnectionLostError(
                f"no server gave the epoch of producer {name} within {WATCH_SECONDS:g} s"
            ) from None
        accepted = "the connection ended" if answer is None else _accept(answer)
        if isinstance(accepted, str):
            raise ConnectionLostError(f"no epoch of producer {name}: {accepted}")
        _check_there(name, accepted)
        return accepted.epoch

    async def write_checkpoints(self, name: str, epoch: int, checkpoints: Mapping[int, Checkpoint]) -> None:
        """See `ProducerRegistry`."""
        entries = _entries(checkpoints)
        answer = await self._ask(
            Question(lambda req_id: ProducerCheckpointsRequest(req_id, name, epoch, entries), _what(name))
        )
        _check_there(name, answer)
        if answer.code == ProducerCode.OTHER_EPOCH:
            check_epoch(name, answer.epoch, epoch)

    async def _ask(self, question: Question) -> ProducerResponse:
        return await self._servers.ask_any(question, _accept)


def _epoch(name: str, epoch: int) -> Question:
    return Question(lambda req_id: ProducerEpochRequest(req_id, name, epoch), _what(name))


def _what(name: str) -> str:
    return f"record of the producer {name}"


def _accept(answer: Message) -> ProducerResponse | str:
    """ConfigError when no server does it; a reason when another one may."""
    if not isinstance(answer, ProducerResponse):
        return f"a server answered with {type(answer).__name__}"
    if answer.code == ProducerCode.REFUSED:
        raise ConfigError(answer.text or "a server refused a request about a named producer")
    if answer.code in (ProducerCode.DONE, ProducerCode.ABSENT, ProducerCode.OTHER_EPOCH):
        return answer
    return answer.text or f"a server answered with the code {answer.code}"


def _check_there(name: str, answer: ProducerResponse) -> None:
    if answer.code == ProducerCode.ABSENT:
        raise ProducerGoneError(f"the producer {name} was deleted: no server finds it in ZooKeeper")


def _record_of(answer: ProducerResponse) -> ProducerRecord:
    checkpoints = {partition_id: Checkpoint(*known) for partition_id, *known in answer.checkpoints}
    return ProducerRecord(answer.client_id, answer.epoch, checkpoints)


def _entries(checkpoints: Mapping[int, Checkpoint]) -> tuple[CheckpointEntry, ...]:
    return tuple(CheckpointEntry(one, *known) for one, known in sorted(checkpoints.items()))
