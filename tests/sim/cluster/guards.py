"""Promises that no client can see broken, watched from inside the processes.

* `node_kept`: what a storage node knew to be durable when it ended is there when it is back (safety: fence,
  disk).
* `fence`: when a request is answered, the fence on the disk is not below its session (safety B1, B2), unless
  the answer is that the disk has no room for it.
* `ownership`: a server whose ZooKeeper session is over, by its own clock, serves no partition (safety D8).
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Mapping

from tests.sim.checkers.nodes import Durable, durable, kept
from tests.sim.cluster.carried_marks import CarriedMarks
from tests.sim.cluster.server_role import ServerRole
from tests.sim.kernel.loop import SimLoop
from waltz_cluster.store import SessionState
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.messages.storage import FailureResponse
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.disk_pool import DiskPool, PartitionQueue
from waltz_storage.service.jobs import Job, JobResult, Reply
from waltz_storage.service.requests import Call, Request

POLL_SECONDS = 0.4
POLLS = 3
"""So often in a row a server must be seen with partitions and without a session."""

_NO_SPACE = os.strerror(errno.ENOSPC).encode()

Report = Callable[[str, str], None]
"""(invariant, text)."""


class NodeMemory:
    """What one storage node knew when it ended. Owner: its role; outlives its processes."""

    def __init__(self, name: str, report: Report, marks: CarriedMarks) -> None:
        self.name = name
        self._marks = marks
        self.damaged: Callable[[], list[int]] = list
        """Partitions in whose files bits were changed behind its back."""
        self.lost: Callable[[], list[int]] = list
        """Partitions of which files are gone."""
        self.report = report
        self._known: dict[int, Durable] = {}
        self._failed: frozenset[int] = frozenset()
        self._dark = False
        self.blind = False
        """It starts as a node without a synced mark, which cannot distinguish damage above its low-water mark
        from a torn tail."""

    def forget(self) -> None:
        """Its disk is another one now."""
        self._known = {}

    def forget_fences(self) -> None:
        """It starts as a node that has no durable fence, or did so before."""
        self._known = {partition: old._replace(fence=-1) for partition, old in self._known.items()}

    def ended(self, told: Mapping[int, Durable], manager: StorageManager) -> None:
        """The process is gone. `told`: what the jobs that were done by then had left; what its memory
        (`manager`) says a job cut short may have lowered (a truncation) and one that was not done may have
        raised."""
        now = durable(manager)
        self._failed = frozenset(
            partition_id for partition_id, one in manager.partitions.items() if one.failed is not None
        )
        self._known = {
            partition_id: Durable(*map(min, old, now[partition_id]))
            for partition_id, old in told.items()
            if partition_id in now
        }

    def power_lost(self) -> None:
        """Its host went dark."""
        self._dark = True

    def lost_in_replay(self) -> None:
        """A write was lost while a journal was replayed, which has the records of the last appends and not
        their marks: as after a power cut, the marks of the side files may be older."""
        self._dark = True

    def opened(self, manager: StorageManager) -> None:
        """A process has opened the directory."""
        dark, self._dark = self._dark, False
        for violation in kept(
            self.name,
            self._known,
            durable(manager),
            self.damaged(),
            dark=dark or self.blind,
            failed=self._failed,
            lost=self.lost(),
        ):
            self.report(violation.invariant, violation.text)

    def watch(self, pool: DiskPool) -> None:
        """Look at each job of the pool, wherever it runs."""
        run = pool._run

        def watched(queue: PartitionQueue, job: Job) -> JobResult:
            result = run(queue, job)
            self._ran(pool.manager, job.items, result)
            return result

        pool._run = watched  # type: ignore[method-assign]

    def _ran(self, manager: StorageManager, items: list[Request | Call], result: JobResult) -> None:
        """The code of a job has run; its answers are on their way."""
        problem = self._marks.ran(self.name, manager)
        if problem is not None:
            self.report("carried_mark", problem)
        for request in items:
            if isinstance(request, Request):
                self._check_fence(manager, request, result)

    def _check_fence(self, manager: StorageManager, request: Request, result: JobResult) -> None:
        partition = manager.partitions.get(request.partition_id)
        if partition is None or partition.failed is not None or partition.durable_fence >= request.session_id:
            return
        if all(map(_is_without_room, result.replies)):
            return
        text = f"{self.name}: partition {request.partition_id}: a request of session {request.session_id} is answered"
        self.report("fence", f"{text}, the fence is at {partition.durable_fence}")


def _is_without_room(reply: Reply) -> bool:
    """A refusal because the disk had no room, as for the fence: the next request has to raise it."""
    body = b"".join(reply[1])[FRAME_HEADER_SIZE:]
    return body[0] == FailureResponse.TYPE and _NO_SPACE in body


class OwnershipWatch:
    """Looks at the servers now and then. Owner: the world."""

    def __init__(self, loop: SimLoop, servers: Mapping[str, ServerRole], report: Report) -> None:
        self._loop = loop
        self._servers = servers
        self._report = report
        self._seen: dict[tuple[str, int], int] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for name, role in self._servers.items():
                self._look(name, role)

    def _look(self, name: str, role: ServerRole) -> None:
        key = (name, role.incarnation)
        if not self._serves_without_session(role):
            self._seen.pop(key, None)
            return
        self._seen[key] = self._seen.get(key, 0) + 1
        if self._seen[key] == POLLS:
            text = f"{name} serves partitions {role.served()} at {self._loop.now:.3f}, its ZooKeeper session is over"
            self._report("ownership", text)

    def _serves_without_session(self, role: ServerRole) -> bool:
        session, process = role.session, role.process
        if role.leaving:  # it has given them up and serves on until the next owner fences it, for seconds
            return False
        if session is None or process is None or not role.alive or process.paused or not role.served():
            return False
        silent = process.monotonic() - session.last_contact
        return session.state is SessionState.LOST or silent > session.session_timeout_seconds
