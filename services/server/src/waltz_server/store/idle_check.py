"""Does a storage node answer while nobody appends, and does it hold what its sessions count on? A few
questions per node and interval, however many partitions it has.

The question is *max transaction id* of some of the open sessions on the connection, of others each time:
every release knows it, it changes nothing, and the fence of that session is where it was. A refusal is an
answer. A node that does not answer within the time limit of requests is silent until it answers a later
question. That is evidence for health reports only: no session ends by it, because a node that merely paused
takes the next append. What it answers goes to the session: a copy that was removed or set back on its node
says less than it has acknowledged, or is fenced, and would be found out by the next append only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple, Protocol, TypeAlias

import structlog

from waltz_protocol.errors import (
    ChannelClosedError,
    RequestFailedError,
    RequestTimeoutError,
    WaltzProtocolError,
)
from waltz_protocol.fence_refusal import fence_in
from waltz_server.store.api import StoreSettings

ASKED_PARTITIONS = 16
"""Of a node, in each interval: a thousand take three minutes."""
Look: TypeAlias = "Callable[[], Callable[[int | RequestFailedError], None]]"
"""Called before the question; what it gives, with the answer: the last transaction of the copy, or the
refusal."""
log = structlog.get_logger(__name__)


class Answering(Protocol):
    """A connection to a storage node, as far as it is asked here."""

    async def max_transaction_id(self, session_id: int, partition_id: int, /) -> int: ...


class _Session(NamedTuple):
    link: Answering
    session_id: int
    look: Look


def another_copy(said: int | RequestFailedError, session_id: int, acknowledged: int) -> str | None:
    """Why a replica of this session, which had acknowledged its records up to `acknowledged` when it was
    asked, is not the copy that did so; None if that is not known. Only while the session is ours: a later one
    fences too."""
    if isinstance(said, RequestFailedError):
        fence = fence_in(said.message, session_id)
        return said.message if fence is not None and fence > session_id else None
    if said < acknowledged:
        return f"it holds records up to {said}, and has acknowledged {acknowledged}"
    return None


class IdleCheck:
    """Which nodes with open sessions are silent. Owner: the directory of connections, which runs it.

    Bounded: `ASKED_PARTITIONS` requests in flight per node; a round ends within the time limit of requests.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._interval_seconds = settings.idle_check_interval_ms / 1000
        self._sessions: dict[str, dict[int, _Session]] = {}
        self._silent: set[str] = set()

    def join(self, node: str, link: Answering, session_id: int, partition_id: int, look: Look) -> None:
        """A session of the partition depends on the node from now on, and looks at its answers."""
        self._sessions.setdefault(node, {})[partition_id] = _Session(link, session_id, look)

    def leave(self, node: str, session_id: int, partition_id: int) -> None:
        """The session has ended, or the replica in it. Idempotent."""
        sessions = self._sessions.get(node, {})
        if partition_id in sessions and sessions[partition_id].session_id == session_id:
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
        chosen = dict(islice(sessions.items(), ASKED_PARTITIONS))
        for partition_id, session in chosen.items():  # next time it is the turn of others
            del sessions[partition_id]
            sessions[partition_id] = session
        asked = (self._ask_one(partition_id, session) for partition_id, session in chosen.items())
        answered = await asyncio.gather(*asked)
        if True in answered:
            if node in self._silent:
                self._silent.discard(node)
                log.info("storage node answers again", replica=node)
        elif False in answered and node in self._sessions and node not in self._silent:
            self._silent.add(node)
            count = len(self._sessions[node])
            log.warning("storage node does not answer", replica=node, partition_count=count)

    @staticmethod
    async def _ask_one(partition_id: int, session: _Session) -> bool | None:
        """Whether it answered; None where every session on the connection has been informed that it
        closed."""
        said = session.look()
        try:
            said(await session.link.max_transaction_id(session.session_id, partition_id))
        except ChannelClosedError:
            return None
        except RequestTimeoutError:
            return False
        except RequestFailedError as refusal:
            said(refusal)
        except WaltzProtocolError:
            pass  # an answer, though no good one
        return True
