"""Is this session still the current one? (rule D4)

A round sends an Append without records to every voter: a node that has heard of a later session refuses it. A
round is done when a quorum of the session's voters answered with success. Callers who come during a round
wait for the next one, because their question is younger than its requests; a commit of a frame that was built
after the question answers too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from waltz_server.store.api import StoreNotOpenError
from waltz_server.store.replica_session import ReplicaSession, SessionOfReplica


class SessionToConfirm(SessionOfReplica, Protocol):
    """A store session, as far as it is asked about here."""

    @property
    def quorum(self) -> int: ...

    @property
    def ended(self) -> bool: ...

    @property
    def replicas(self) -> Mapping[str, ReplicaSession]: ...


class Confirmations:
    """Waiting confirmations of one session. Owner: the session."""

    def __init__(self, session: SessionToConfirm) -> None:
        self._session = session
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._asked: list[tuple[int, asyncio.Future[None]]] = []
        self._outstanding: set[str] = set()
        self._successes = 0
        self._round = 0
        self._scheduled = False

    def ask(self) -> asyncio.Future[None]:
        """A future that is done once the session is confirmed, and fails with `StoreNotOpenError` if it is
        not."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append((self._session.queue.end_seq, future))
        self._schedule()
        return future

    def committed(self, seq: int) -> None:
        """Frame `seq` is committed: everybody who asked before it was built is answered."""
        if self._waiting or self._asked:
            self._waiting = _settle(self._waiting, seq)
            self._asked = _settle(self._asked, seq)

    def replica_failed(self, name: str) -> None:
        self._answered(self._round, name, StoreNotOpenError("the replica failed"))

    def end(self, reason: str) -> None:
        """The session is over: nobody is confirmed any longer."""
        for _, future in self._waiting + self._asked:
            if not future.done():
                future.set_exception(StoreNotOpenError(f"the session ended: {reason}"))
        self._waiting, self._asked = [], []
        self._outstanding.clear()

    def _schedule(self) -> None:
        if not self._scheduled and not self._outstanding:
            self._scheduled = True
            self._session.callbacks.call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        session = self._session
        self._waiting = [item for item in self._waiting if not item[1].done()]
        if session.ended or self._outstanding or not self._waiting:
            return
        self._round += 1
        self._asked, self._waiting = self._waiting, []
        self._successes = 0
        voters = [
            r for r in session.replicas.values() if session.votes.has_voice(r.name) and r.link is not None
        ]
        self._outstanding = {replica.name for replica in voters}
        if len(voters) < session.quorum:
            self._fail()
            return
        for replica in voters:
            answered: Callable[[Exception | None], None] = partial(
                session.callbacks.run, self._answered, self._round, replica.name
            )
            replica.submit(session, 0, b"", answered)

    def _answered(self, number: int, name: str, error: Exception | None) -> None:
        if number != self._round or name not in self._outstanding:
            return
        self._outstanding.discard(name)
        session = self._session
        if error is None:
            self._successes += 1
            if self._successes == session.quorum:
                asked, self._asked = self._asked, []
                for _, future in asked:
                    if not future.done():
                        future.set_result(None)
        elif not isinstance(error, StoreNotOpenError):
            session.fail_replica(name, f"confirming the session: {error}")
        if self._successes + len(self._outstanding) < session.quorum:
            self._fail()
        if not self._outstanding or self._successes >= session.quorum:
            self._outstanding.clear()
            if self._waiting:
                self._schedule()

    def _fail(self) -> None:
        asked, self._asked = self._asked, []
        for _, future in asked:
            if not future.done():
                future.set_exception(StoreNotOpenError("no quorum of the voters confirmed the session"))
        self._outstanding.clear()


def _settle(
    items: list[tuple[int, asyncio.Future[None]]], seq: int
) -> list[tuple[int, asyncio.Future[None]]]:
    left = []
    for asked_seq, future in items:
        if asked_seq <= seq:
            if not future.done():
                future.set_result(None)
        else:
            left.append((asked_seq, future))
    return left
