"""What ZooKeeper says to credentials and permissions that it does not know."""

import asyncio
import contextlib

import pytest

from cluster_tests.conftest import session, zookeeper_settings
from cluster_tests.manager_helpers import Server, seed, until
from waltz_cluster.errors import AuthError, ConnectionLostError, StoreError
from waltz_cluster.store import SessionState
from waltz_cluster.zk_client import KazooStore, connect
from waltz_testkit.zookeeper import EmbeddedZooKeeper


async def served(store: KazooStore) -> None:
    """A session that was just given may be refused yet."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(StoreError):
                assert await store.exists("/") is not None
                return
            await asyncio.sleep(0.05)


async def test_permissions_that_zookeeper_does_not_know_are_refused_at_once(
    zookeeper: EmbeddedZooKeeper, root: str
) -> None:
    """A registration was tried for half a minute, and ended with "ZooKeeper stayed away"."""
    async with contextlib.AsyncExitStack() as stack:
        outside = await connect(zookeeper_settings(zookeeper.connect_string, "/any"))
        stack.push_async_callback(outside.close)
        await seed(outside, root, 1)
        no_hash = {"zookeeper.auth": "u:p", "zookeeper.acl": "digest:waltz:cdrwa"}
        store = await connect(zookeeper_settings(zookeeper.connect_string, "/any", **no_hash))
        stack.push_async_callback(store.close)
        server = Server(store, root, 8001)
        with pytest.raises(AuthError, match=r"check zookeeper\.auth and zookeeper\.acl"):
            await server.start()
        await server.stop()


async def test_a_server_that_refuses_the_credentials_is_not_the_last_that_is_asked(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    """One of an ensemble does not have the scheme, say while it is reconfigured: whoever met it was never
    connected again, to no server."""
    async with session(own_zookeeper, **{"zookeeper.sessionTimeout": 20_000}) as store:
        store._client.auth_data.add(("nosuch", "u:p"))
        store._handler.cut()
        await until(lambda: store._handler.credentials_refused)
        with pytest.raises(AuthError, match=r"check zookeeper\.auth"):
            while True:
                with contextlib.suppress(ConnectionLostError):
                    await store.exists("/")
        store._client.auth_data.clear()
        await served(store)
        assert store.epoch == 1


async def test_a_session_that_nobody_lets_in_ends(own_zookeeper: EmbeddedZooKeeper) -> None:
    """kazoo has the session before it sends the credentials: each attempt kept it alive, and with it the
    registration of a server that could not serve."""
    async with session(own_zookeeper) as outside, session(own_zookeeper) as store:
        states = list[SessionState]()
        store.add_session_listener(lambda event: states.append(event.state))
        await store.create("/mine", b"", ephemeral=True)
        store._client.auth_data.add(("nosuch", "u:p"))
        store._handler.cut()
        async with asyncio.timeout(30):
            while await outside.exists("/mine") is not None:
                await asyncio.sleep(0.1)
        await asyncio.sleep(store.session_timeout_seconds)
        assert states.count(SessionState.LOST) == 1  # the others are of no use either, and are not ended
        store._client.auth_data.clear()
        await served(store)
