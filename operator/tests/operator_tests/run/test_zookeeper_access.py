"""A real ZooKeeper is closed to others and opened again, and what it shows then to whom."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from waltz_admin.seeding import create
from waltz_admin.view import ClusterView, probe
from waltz_cluster.errors import AuthError, ConnectionLostError
from waltz_cluster.store import ZooKeeperStore
from waltz_cluster.zk_client import connect
from waltz_operator.model.snapshot import Closure
from waltz_operator.run.zookeeper_access import GuardedStore, guarded, identity, read_mark, set_mark
from waltz_operator.run.zookeeper_sessions import Ensemble
from waltz_testkit.zookeeper import EmbeddedZooKeeper

OURS, THEIRS = "waltz:sesame", "waltz:guessed"
ROOT = "/waltz/demo/ledger"


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as found:
        yield found


@contextlib.asynccontextmanager
async def session(
    zookeeper: EmbeddedZooKeeper, credentials: str | None, acl: str = "open"
) -> AsyncIterator[GuardedStore]:
    found = Ensemble(zookeeper.connect_string, ROOT, credentials=credentials, acl=acl)
    store = await connect(found.settings())
    try:
        yield guarded(store)
    finally:
        await store.close()


async def may(store: ZooKeeperStore, path: str) -> tuple[bool, bool]:
    """Whether it may read and write there."""

    async def permitted(what: str) -> bool:
        try:
            await (store.get(path) if what == "read" else store.create(f"{path}/new", b"", sequential=True))
        except AuthError:
            return False
        return True

    return await permitted("read"), await permitted("write")


class Dies:
    """A session whose owner dies at the n-th change of permissions."""

    def __init__(self, store: GuardedStore, after: int) -> None:
        self._store = store
        self._left = after

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def acl(self, path: str) -> list[str]:
        return await self._store.acl(path)

    async def set_acl(self, path: str, acl: str) -> None:
        if not self._left:
            raise ConnectionLostError("it died")
        self._left -= 1
        await self._store.set_acl(path, acl)


async def test_it_is_closed_and_opened_whenever_the_operator_dies(zookeeper: EmbeddedZooKeeper) -> None:
    async with (
        session(zookeeper, OURS) as ours,
        session(zookeeper, THEIRS) as theirs,
        session(zookeeper, None) as stranger,
    ):
        await create(ours, ROOT, "ledger", 2)
        assert await read_mark(ours, OURS) is Closure.OPEN
        assert await may(stranger, ROOT) == (True, True)
        await set_mark(ours, Closure.CHANGING, ROOT)
        assert await may(stranger, ROOT) == (True, True)
        for mark in (Closure.CLOSED, Closure.OPEN):
            await set_mark(ours, Closure.CHANGING, ROOT)
            deaths = 0
            while True:
                assert await read_mark(ours, OURS) is Closure.CHANGING
                try:
                    await set_mark(Dies(ours, deaths), mark, ROOT)  # type: ignore[arg-type]
                    break
                except ConnectionLostError:
                    deaths += 1
            assert deaths > 10, "one at every write"
            assert await read_mark(ours, OURS) is mark
            assert isinstance(await probe(ours, ROOT), ClusterView)
            permitted = mark is Closure.OPEN
            for other in (stranger, theirs):
                for path in ("/", "/waltz", ROOT, f"{ROOT}/store", f"{ROOT}/ids/client", "/zookeeper"):
                    assert await may(other, path) == (permitted, permitted), (mark, path)
            assert await may(ours, ROOT) == (True, True)


async def test_the_mark_of_others_is_none_of_ours(tmp_path: Path) -> None:
    zookeeper = EmbeddedZooKeeper(tmp_path)
    await asyncio.to_thread(zookeeper.start)
    try:
        async with session(zookeeper, THEIRS) as theirs, session(zookeeper, OURS) as ours:
            await set_mark(theirs, Closure.CHANGING, ROOT)
            assert await read_mark(ours, OURS) is Closure.OPEN, "everybody may still do everything"
            await theirs.create("/mine", b"")
            await theirs.set_acl("/mine", "auth::cdrwa")
            await set_mark(ours, Closure.CLOSED, ROOT)
            assert await read_mark(ours, OURS) is Closure.CLOSED, "a stranger's znode holds nothing up"
            with pytest.raises(AuthError):
                await read_mark(theirs, THEIRS)
            assert identity(OURS) in (await ours.acl("/"))[0]
    finally:
        await asyncio.to_thread(zookeeper.stop)


async def test_what_a_role_creates_is_closed_too(zookeeper: EmbeddedZooKeeper) -> None:
    async with session(zookeeper, OURS, "creator") as role, session(zookeeper, OURS) as operator:
        path = await role.create("/role", b"", ephemeral=True)
        assert await operator.acl(path) == [f"{identity(OURS)}:cdrwa"]
        await operator.set(path, b"read and written with the same credentials")
