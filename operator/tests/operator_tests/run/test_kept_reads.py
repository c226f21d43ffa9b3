"""What is kept for a cluster at rest ends with the look that it is kept for, and shows the certificates that
are in use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import AsyncMock
from uuid import UUID

import pytest

from operator_tests.kube.objects import ObjectsKube
from operator_tests.run.test_refusals import waltz_cluster
from waltz_admin.server_admin import ServerInspection
from waltz_admin.storage_admin import NodeInspection
from waltz_cluster.store import SessionState
from waltz_operator.kube.client import Object
from waltz_operator.model.snapshot import NodeView, ServerView, TreeView
from waltz_operator.run import observe
from waltz_operator.run.observe import Observer
from waltz_operator.run.tls_files import TlsFiles
from waltz_operator.run.zookeeper_sessions import Ensembles
from waltz_protocol.types import ShownCertificate

NODE = "ledger-storage-1-0-0.ledger-storage:55280"
TREE = TreeView(
    "ledger", UUID(int=1), 1, {NODE: 1}, {NODE: (0,)}, {NODE: 55281}, (0, 0, 0), {}, {1: "server:55180"}
)


class Kept:
    """In place of `KeptReads`; `shown`: the certificates of everybody."""

    made: list[Kept]
    shown = "own"

    def __init__(self, tls: object, *parts: object) -> None:
        self.tls = tls
        self.watched = parts[-1] if parts else None
        self.ended = 0
        Kept.made.append(self)

    async def tree(self, *_: object) -> TreeView:
        return TREE

    async def node(self, *_: object) -> NodeInspection:
        return NodeInspection((), frozenset(), frozenset(), certificate=ShownCertificate(Kept.shown, 9.0))

    async def server(self, *_: object) -> ServerInspection:
        return ServerInspection(frozenset(), {}, {}, ShownCertificate(Kept.shown, 9.0))

    def end_connections(self) -> None:
        self.ended += 1

    async def close(self) -> None:
        self.ended += 1


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Kept]:
    Kept.made, Kept.shown = [], "own"
    monkeypatch.setattr(observe, "KeptReads", Kept)
    monkeypatch.setattr(observe, "FreshReads", lambda: Kept(None))
    monkeypatch.setattr(observe, "held_certificates", lambda _: {"storage": ShownCertificate("own", 9.0)})
    return Kept.made


@asynccontextmanager
async def observer(body: Object) -> AsyncIterator[Observer]:
    session = SimpleNamespace(state=SessionState.CONNECTED, close=AsyncMock())
    ensembles, files = Ensembles(AsyncMock(return_value=session)), TlsFiles()
    found = Observer(ObjectsKube(body), ensembles, files, lambda: 1000.0)
    try:
        yield found
    finally:
        await found.close()
        await ensembles.close()
        files.close()


async def test_they_are_used_as_long_as_the_look_is(kept: list[Kept]) -> None:
    async with observer(waltz_cluster()) as found:
        look = (await found.observe("demo", "ledger")).look
        assert look is not None
        assert len(kept) == 1, "those that keep nothing"
        for _ in range(3):
            seen = await found.observe_again(look)
            assert isinstance(seen.snapshot.nodes[NODE], NodeView)
            assert isinstance(seen.snapshot.servers[1], ServerView)
        assert [one.ended for one in kept[1:]] == [0]
        await found.observe_again(replace(look, at=1001.0))
        assert [one.ended for one in kept[1:]] == [1, 0]
        found.forget(("demo", "ledger"))
        assert [one.ended for one in kept[1:]] == [1, 1]
        await found.observe_again(look)
    assert [one.ended for one in kept[1:]] == [1, 1, 1]


async def test_watches_outlive_the_look_and_connections_do_not() -> None:
    """Watches cannot be taken back. A look that is not retained, say of a cluster that somebody else has
    taken over, keeps no connection."""
    async with observer(waltz_cluster()) as found:
        for _ in range(2):
            look = (await found.observe("demo", "ledger")).look
            assert look is not None
            await found.observe_again(look)
        kept = [one for one in Kept.made if one.watched is not None]
        assert len(kept) == 2
        assert kept[0].watched is kept[1].watched
        assert [one.ended for one in kept] == [1, 0]
        await found.observe("demo", "ledger")
        assert [one.ended for one in kept] == [1, 1]
        found.forget(("demo", "ledger"))
        assert not found._watched


async def test_who_uses_another_certificate_than_the_secret_has_is_asked_over_a_new_connection(
    kept: list[Kept],
) -> None:
    async with observer(waltz_cluster()) as found:
        look = (await found.observe("demo", "ledger")).look
        assert look is not None
        await found.observe_again(look)
        assert kept[1].ended == 0
        Kept.shown = "the one before"
        await found.observe_again(look)
        assert kept[1].ended == 1


async def test_without_a_certificate_of_the_operator_nothing_is_kept(kept: list[Kept]) -> None:
    async with observer(waltz_cluster(tls={"mode": "SelfSigned"})) as found:
        look = (await found.observe("demo", "ledger")).look
        assert look is not None
        assert look.access.tls is None
        await found.observe_again(look)
    assert len(kept) == 1
