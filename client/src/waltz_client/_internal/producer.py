"""One instance of a named producer: epoch, what it knows of each partition, end (ADR 38).

Invariants: the marks of a partition, and with them its checkpoint, cover only what was received in order;
once a newer instance is known, nothing is appended and no checkpoint is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from waltz_client._internal.append.sequences import SequenceMarks
from waltz_client.errors import Outcome, ProducerFencedError
from waltz_cluster.errors import ClusterError
from waltz_cluster.producers import (
    EpochWentBackError,
    NewerEpochError,
    ProducerGoneError,
    ProducerRegistry,
)
from waltz_cluster.serializers import Checkpoint, ProducerRecord
from waltz_protocol.backoff import Backoff, Random

log = logging.getLogger(__name__)

WATCH_RETRY_SECONDS = 0.1, 5.0
LAST_CHECKPOINT_SECONDS = 2.0
"""For the checkpoint of a client that is closed. Without it the next instance only searches more."""


class Instance(Protocol):
    """What the append side of a partition needs."""

    epoch: int

    @property
    def fenced(self) -> bool:
        """Whether a newer instance is known."""
        ...

    def marks_of(self, partition_id: int) -> SequenceMarks:
        """What is known of the numbers in a partition."""
        ...

    def superseded(self, newer_epoch: int | None) -> None:
        """A server or ZooKeeper says that there is a newer instance."""
        ...

    def fenced_error(self, partition_id: int, outcome: Outcome = Outcome.FAILED) -> ProducerFencedError:
        """For an append of a fenced instance."""
        ...


class Producer:
    """See the module. Owner: the client, on its loop."""

    def __init__(
        self,
        name: str,
        record: ProducerRecord,
        registry: ProducerRegistry,
        interval_seconds: float,
        random: Random,
    ) -> None:
        self.name = name
        self.epoch = record.epoch
        self.client_id = record.client_id
        self.newer_epoch: int | None = None
        self._about = {"producer": name}
        self._fenced = False
        self._why: str | None = None
        """Another reason than a newer instance."""
        self._on_fenced: Callable[[], None] = lambda: None
        self._registry = registry
        self._interval_seconds = interval_seconds
        self._random = random
        self._written = dict(record.checkpoints)
        self._marks: dict[int, SequenceMarks] = {}
        self._collect: Callable[[], None] = lambda: None

    @property
    def fenced(self) -> bool:
        """See `Instance`."""
        return self._fenced

    def marks_of(self, partition_id: int) -> SequenceMarks:
        """See `Instance`. A partition that the record does not have is searched from its beginning."""
        marks = self._marks.get(partition_id)
        if marks is None:
            known = self._written.get(partition_id, Checkpoint(-1, -1))
            marks = self._marks[partition_id] = SequenceMarks(known)
        return marks

    def check(self, partition_id: int) -> None:
        """ProducerFencedError when there is a newer instance."""
        if self._fenced:
            raise self.fenced_error(partition_id)

    def fenced_error(self, partition_id: int, outcome: Outcome = Outcome.FAILED) -> ProducerFencedError:
        """See `Instance`."""
        return ProducerFencedError(
            partition_id=partition_id,
            producer=self.name,
            epoch=self.epoch,
            newer_epoch=self.newer_epoch,
            why=self._why,
            outcome=outcome,
        )

    def superseded(self, newer_epoch: int | None) -> None:
        """See `Instance`."""
        if newer_epoch is not None:
            self.newer_epoch = newer_epoch
        self._end(f"the producer {self.name} has a newer instance")

    def _end(self, what: str, why: str | None = None) -> None:
        if not self._fenced:
            self._fenced, self._why = True, why
            log.error("%s: this one, of epoch %d, appends nothing more", what, self.epoch, extra=self._about)
            self._on_fenced()

    # -- life ------------------------------------------------------------------------------------------------

    def start(
        self,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        collect: Callable[[], None],
        on_fenced: Callable[[], None],
    ) -> None:
        """`collect` brings the marks up to date, `on_fenced` ends what is under way."""
        self._collect, self._on_fenced = collect, on_fenced
        spawn(self._watch(), f"epoch of producer {self.name}")
        spawn(self._write_now_and_then(), f"checkpoints of producer {self.name}")

    async def _watch(self) -> None:
        backoff = Backoff(*WATCH_RETRY_SECONDS, self._random)
        changed = asyncio.Event()
        while True:
            changed.clear()
            try:
                newest = await self._registry.newest_epoch(self.name, changed.set)
            except ProducerGoneError:
                self.superseded(None)
                return
            except ClusterError as error:
                log.debug(
                    "the epoch of producer %s is not known now: %s", self.name, error, extra=self._about
                )
                await asyncio.sleep(backoff.next_seconds())
                continue
            backoff.reset()
            if newest > self.epoch:
                self.superseded(newest)
                return
            await changed.wait()

    async def _write_now_and_then(self) -> None:
        while not self._fenced:
            await asyncio.sleep(self._interval_seconds)
            await self._write()

    async def _write(self) -> None:
        """What is further than what was written last."""
        self._collect()
        found: Mapping[int, Checkpoint] = {
            partition_id: marks.checkpoint
            for partition_id, marks in self._marks.items()
            if marks.checkpoint != self._written.get(partition_id)
        }
        if not found or self._fenced:
            return
        try:
            await self._registry.write_checkpoints(self.name, self.epoch, found)
        except NewerEpochError as newer:
            self.superseded(newer.epoch)
        except ProducerGoneError:
            self.superseded(None)
        except EpochWentBackError as error:
            self._end(str(error), str(error))
        except ClusterError as error:
            log.warning(
                "the checkpoints of producer %s were not written: %s", self.name, error, extra=self._about
            )
        else:
            self._written.update(found)

    async def close(self) -> None:
        """The client has ended: the last checkpoint, if ZooKeeper takes it at once."""
        try:
            async with asyncio.timeout(LAST_CHECKPOINT_SECONDS):
                await self._write()
        except TimeoutError:
            log.warning(
                "the last checkpoints of producer %s were not written in time", self.name, extra=self._about
            )
