"""A copy of the records that does not fit into its Secret, and one that cannot be made."""

from __future__ import annotations

import base64
import gzip
import random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from operator_tests.resources.clusters import cluster
from waltz_admin.errors import AdminError
from waltz_admin.seeding import create_exactly
from waltz_admin.tree_copy import read_tree
from waltz_admin.tree_file import ClusterTree, decode
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.producers import ZooKeeperProducers
from waltz_cluster.serializers import Checkpoint, ProducerRecord
from waltz_operator.plan.zookeeper_export import MAX_BYTES, Exports
from waltz_operator.run import due_secrets
from waltz_operator.run.due_secrets import due_export

PARTITIONS = 1000


class Observer:
    """Reads this tree."""

    def __init__(self, tree: ClusterTree | None) -> None:
        self._tree = tree
        self.failures = 0

    async def export(self, observation: object) -> ClusterTree:
        if self._tree is None:
            raise AdminError("the tree keeps changing")
        return self._tree

    def export_failed(self, observation: object) -> None:
        self.failures += 1


async def made(observer: Observer, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The copies in the Secret after it was due."""
    monkeypatch.setattr(due_secrets, "export_is_due", lambda _: True)
    wanted = cluster({"zookeeper": {"export": {"intervalHours": 1}}})
    observation = SimpleNamespace(
        snapshot=SimpleNamespace(cluster=wanted, now=1e9),
        access=SimpleNamespace(exports=Exports(version="1")),
    )
    step = await due_export(cast("Any", observer), cast("Any", observation))
    return [base64.b64decode(copy) for copy in step.body["data"].values()] if step is not None else []


async def tree_of(producers: int) -> ClusterTree:
    store, rng = MemoryZooKeeper().session(), random.Random(0)
    await create_exactly(store, "/c", "c", PARTITIONS, UUID(int=1))
    registry = ZooKeeperProducers(store, ClusterPaths("/c"), rng)
    for number in range(producers):
        checkpoints = {
            one: Checkpoint(mark := rng.randrange(1 << 40), mark, rng.randrange(1 << 31))
            for one in range(PARTITIONS)
        }
        await registry.create(f"p{number}", ProducerRecord(number + 1, 2, checkpoints))
    return await read_tree(store, "/c", "2026-01-01T00:00:00Z")


async def test_many_producers_do_not_end_the_copies_of_the_records(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tree = await tree_of(100)
    observer = Observer(tree)
    (copy,) = await made(observer, monkeypatch)
    assert len(copy) <= MAX_BYTES
    found = decode(gzip.decompress(copy))
    assert found.same_as(tree.without_checkpoints())
    assert ProducerRecord.from_bytes(found.znodes["/producers/p99"].data) == ProducerRecord(100, 2)
    assert "the checkpoints of named producers are left out" in caplog.text
    assert observer.failures == 0


async def test_few_producers_are_exported_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = await tree_of(1)
    (copy,) = await made(Observer(tree), monkeypatch)
    assert decode(gzip.decompress(copy)).same_as(tree)


async def test_a_copy_that_cannot_be_made_is_not_due_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    unreadable = Observer(None)
    assert await made(unreadable, monkeypatch) == []
    assert unreadable.failures == 1
    too_large = Observer(await tree_of(1))
    monkeypatch.setattr(due_secrets, "MAX_BYTES", 10)
    monkeypatch.setattr("waltz_operator.plan.zookeeper_export.MAX_BYTES", 10)
    assert await made(too_large, monkeypatch) == []
    assert too_large.failures == 1
