"""The named producers of an in-process log: in place of those in ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from waltz_cluster.producers import ProducerGoneError, check_epoch
from waltz_cluster.serializers import Checkpoint, ProducerRecord


class LogProducers:
    """See `waltz_cluster.producers.ProducerRegistry`. They live as long as the log."""

    def __init__(self) -> None:
        self._records: dict[str, ProducerRecord] = {}
        self._watches: dict[str, list[Callable[[], None]]] = {}

    async def find(self, name: str) -> ProducerRecord | None:
        """See `ProducerRegistry`."""
        return self._records.get(name)

    async def create(self, name: str, record: ProducerRecord) -> None:
        """See `ProducerRegistry`."""
        self._records.setdefault(name, record)

    async def raise_epoch(self, name: str) -> ProducerRecord:
        """See `ProducerRegistry`."""
        record = self._of(name)
        return self._set(name, replace(record, epoch=record.epoch + 1))

    async def newest_epoch(self, name: str, changed: Callable[[], None]) -> int:
        """See `ProducerRegistry`."""
        epoch = self._of(name).epoch
        self._watches.setdefault(name, []).append(changed)
        return epoch

    async def write_checkpoints(self, name: str, epoch: int, checkpoints: Mapping[int, Checkpoint]) -> None:
        """See `ProducerRegistry`."""
        record = self._of(name)
        check_epoch(name, record.epoch, epoch)
        self._set(name, record.with_checkpoints(checkpoints))

    def _of(self, name: str) -> ProducerRecord:
        try:
            return self._records[name]
        except KeyError:
            raise ProducerGoneError(f"the log has no producer {name}") from None

    def _set(self, name: str, record: ProducerRecord) -> ProducerRecord:
        self._records[name] = record
        for changed in self._watches.pop(name, ()):
            changed()
        return record
