"""Does a storage node answer while nobody appends? One question per node and interval, however many
partitions it has.

The question is *max transaction id* of one of the open sessions on the connection, a different one each time:
every release knows it, it changes nothing, and the fence of that session is where it was. A refusal is an
answer. A node that does not answer within the time limit of requests is silent until it answers a later
question. That is evidence for health reports only: no session ends by it, because a node that merely paused
takes the next append.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from waltz_protocol.errors import ChannelClosedError, RequestTimeoutError, WaltzProtocolError
from waltz_server.store.api import StoreSettings

log = structlog.get_logger(__name__)


class Answering(Protocol):
    """A connection to a storage node, as far as it is asked here."""

    async def max_transaction_id(self, session_id: int, partition_id: int, /) -> int: ...


class IdleCheck:
    """Which nodes with open sessions are silent. Owner: the directory of connections, which runs it.

    Bounded: one request in flight per node; a round ends within the time limit of requests.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._interval_seconds = settings.idle_check_interval_ms / 1000
        self._sessions: dict[str, dict[int, tuple[Answering, int]]] = {}
        self._silent: set[str] = set()

    def join(self, node: str, link: Answering, session_id: int, partition_id: int) -> None:
        """A session of the partition depends on the node from now on."""
        self._sessions.setdefault(node, {})[partition_id] = (link, session_id)

    def leave(self, node: str, session_id: int, partition_id: int) -> None:
        """The session has ended, or the replica in it. Idempotent."""
        sessions = self._sessions.get(node, {})
        if partition_id in sessions and sessions[partition_id][1] == session_id:
            del sessions[partition_id]
            if not sessions:
                del self._sessions[node]
                self._silent.discard(node)

    def problem(self, node: str) -> str:
        """Why the node is not expected to take a write now; empty when it answered the last question, or was
        asked none."""
        return "does not answer" if node in self._silent else ""

    async def run(self) -> None:
        """Ask in rounds, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_seconds)
            async with asyncio.TaskGroup() as tasks:
                for node in self._sessions:
                    tasks.create_task(self._ask(node))

    async def _ask(self, node: str) -> None:
        sessions = self._sessions.get(node)
        if sessions is None:
            return
        partition_id = next(iter(sessions))
        link, session_id = sessions[partition_id] = sessions.pop(
            partition_id
        )  # next time it is another one's turn
        try:
            await link.max_transaction_id(session_id, partition_id)
        except ChannelClosedError:
            return  # every session on the connection has been informed
        except RequestTimeoutError:
            if node in self._sessions and node not in self._silent:
                self._silent.add(node)
                log.warning(
                    "storage node does not answer", replica=node, partition_count=len(self._sessions[node])
                )
            return
        except WaltzProtocolError:
            pass  # a refusal is an answer
        if node in self._silent:
            self._silent.discard(node)
            log.info("storage node answers again", replica=node)
