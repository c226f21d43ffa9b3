"""What a recovery reads ahead for a copy: whom it reports, and how long it holds."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

import pytest

from server_tests.store.fakes import FakeLink, FakeNode
from server_tests.store.test_router_and_directory import node_with_records
from waltz_protocol.errors import ConnectError
from waltz_protocol.types import Endpoint
from waltz_server.store.api import StoreSettings
from waltz_server.store.list_request_size import ListRequestSize
from waltz_server.store.replica_connection import ReplicaDirectory, ReplicaLink
from waltz_server.store.replica_recovery import ReplicaRecovery

pytestmark = pytest.mark.looptime


class _Copies:
    """Replica b:1, which is empty, is filled from a:1, a record at a time."""

    def __init__(self, version: int = 0) -> None:
        self.source = node_with_records("a:1", 4)
        self.target = FakeNode("b:1")
        for node in (self.source, self.target):
            node.version = version
        self.failed: list[float] = []
        self.standing = (1, 3)
        self.links = {node.name: FakeLink(node, 2.0) for node in (self.source, self.target)}
        loop = asyncio.get_running_loop()
        began = loop.time()
        run = SimpleNamespace(link_of=self.links.get, note=lambda *_, **__: None)
        context = SimpleNamespace(
            partition_id=0,
            settings=StoreSettings(catch_up_batch_records=1),
            list_request_size=ListRequestSize(),
            directory=ReplicaDirectory(self._no_other, settings=StoreSettings(), rng=random.Random(1)),
        )
        recovery = SimpleNamespace(
            copied=lambda *_: None,
            source_failed=lambda *_: self.failed.append(loop.time() - began),
            standing_of=lambda _: self.standing,
        )
        self.replica = ReplicaRecovery(run, context, recovery, 7, "b:1")  # type: ignore[arg-type]

    async def _no_other(self, endpoint: Endpoint) -> ReplicaLink:
        raise ConnectError(f"{endpoint} is not part of this")

    async def copy(self, first: int) -> None:
        await self.replica._copy(self.links["b:1"], "a:1", first, 3)

    def reads(self) -> int:
        return sum(call in ("list", "range") for call in self.source.calls)

    def fill_anew(self) -> None:
        """The source has other records from 1 on."""
        self.source.log[1:] = node_with_records("a:1", 4).log[1:]


async def test_a_source_that_does_not_answer_costs_one_time_limit() -> None:
    copies = _Copies()

    def silent_after_the_first(_kind: str, _session: int) -> None:
        copies.source.answers = copies.reads() < 2

    copies.source.refuse = silent_after_the_first
    await copies.copy(0)
    assert [round(seconds, 1) for seconds in copies.failed] == [2.0]
    assert copies.target.max_txid == 0


@pytest.mark.parametrize("version", [0, 1])
async def test_what_was_read_ahead_is_used_once(version: int) -> None:
    copies = _Copies(version)
    for first in range(4):
        await copies.copy(first)
    assert copies.target.log == copies.source.log
    assert copies.reads() == 4


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("change", ["link", "closed", "answer", "mark"])
async def test_safety_a2_what_was_read_ahead_does_not_outlive_the_records_of_its_source(
    version: int, change: str
) -> None:
    """The source is cut and filled again while the append before is on its way."""
    copies = _Copies(version)
    await copies.copy(0)
    copies.fill_anew()
    match change:
        case "link":
            copies.links["a:1"] = FakeLink(copies.source, 2.0)
        case "closed":
            copies.links["a:1"].close()
            await copies.copy(1)
            assert copies.target.max_txid == 0
            return
        case "answer":
            copies.standing = (2, 3)
        case "mark":
            copies.standing = (1, 2)
    await copies.copy(1)
    assert copies.target.log == copies.source.log[:2]
