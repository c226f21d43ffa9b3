"""A server of ZooKeeper that says nothing, and requests that find no connection."""

import asyncio
import contextlib
import threading
import time

import pytest

from cluster_tests.conftest import session
from cluster_tests.manager_helpers import until
from waltz_cluster.errors import ConnectionLostError
from waltz_cluster.store import SessionEvent, SessionState
from waltz_cluster.zk_client import KazooStore
from waltz_testkit.zookeeper import EmbeddedZooKeeper


async def ask(store: KazooStore) -> None:
    with contextlib.suppress(TimeoutError, ConnectionLostError):
        async with asyncio.timeout(0.3):
            await store.exists("/")


async def test_a_silent_server_is_left_also_while_requests_are_sent_to_it(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    """Its machine is gone, and no packet says so: whoever asked it again and again stayed with it until TCP
    gave up, a quarter of an hour later, although other servers served."""
    async with session(own_zookeeper, **{"zookeeper.sessionTimeout": 8_000}) as store:
        await asyncio.to_thread(own_zookeeper.pause)
        began = store.last_contact
        while store.state is SessionState.CONNECTED:
            await ask(store)
            silent = asyncio.get_running_loop().time() - began
            assert silent < store.session_timeout_seconds, "the session ends before another server is asked"
        await asyncio.to_thread(own_zookeeper.unpause)
        await until(lambda: store.state is SessionState.CONNECTED, 20)
        assert store.epoch == 1


async def test_a_connection_with_answers_is_kept_when_the_heartbeat_waits_long(
    own_zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server with very many requests in line is not silent."""
    async with session(own_zookeeper) as store:
        exists, waiting, events = store.exists, asyncio.Event(), list[SessionEvent]()
        store.add_session_listener(events.append)

        async def unanswered(path: str) -> None:
            waiting.set()
            await asyncio.sleep(3600)

        monkeypatch.setattr(store, "exists", unanswered)
        async with asyncio.timeout(store.session_timeout_seconds):
            await waiting.wait()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + store.session_timeout_seconds * 0.75
        while loop.time() < deadline:
            await exists("/")
            await asyncio.sleep(0.1)
        assert events == []


async def test_an_answer_that_has_come_when_the_wait_is_over_keeps_the_connection(
    own_zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped for a while has it in its socket, and its timers are due at once."""
    async with session(own_zookeeper) as store:
        exists, events = store.exists, list[SessionEvent]()
        over = asyncio.Event()
        store.add_session_listener(events.append)

        async def unanswered(path: str) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                over.set()

        monkeypatch.setattr(store, "exists", unanswered)
        async with asyncio.timeout(2 * store.session_timeout_seconds):
            await over.wait()
        await exists("/")
        await asyncio.sleep(0.1 * store.session_timeout_seconds)
        assert events == []


async def test_requests_of_the_turn_in_which_the_connection_ends_are_refused(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    """A server that opens many partitions: they waited for the next connection, and from the 279th on the
    event loop did with them."""
    async with session(own_zookeeper) as store:
        outcomes = list[object]()

        async def connection_ends() -> None:
            own_zookeeper.kill()
            while store._client.connected:
                time.sleep(0.01)  # the turn of the loop is not over: the store has not heard of it

        async def read() -> None:
            try:
                outcomes.append(await store.exists("/"))
            except ConnectionLostError as error:
                outcomes.append(error)

        again = threading.Timer(4.0, own_zookeeper.start)
        again.start()
        try:
            began = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(connection_ends())
                for _ in range(600):
                    tasks.create_task(read())
            assert time.monotonic() - began < 3.0
        finally:
            again.join()
        assert {type(outcome) for outcome in outcomes} == {ConnectionLostError}
