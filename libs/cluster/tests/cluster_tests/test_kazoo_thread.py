"""Errors that nobody foresaw, in the thread in which kazoo connects and reads."""

import asyncio
import contextlib
import socket
import time
from pathlib import Path

import pytest

from cluster_tests.conftest import zookeeper_settings
from cluster_tests.manager_helpers import until
from waltz_cluster.errors import ConnectionLostError
from waltz_cluster.store import SessionState
from waltz_cluster.zk_client import connect
from waltz_cluster.zk_connection import ConnectionHandler
from waltz_protocol.aio.tasks import spawn
from waltz_testkit.zookeeper import EmbeddedZooKeeper


async def test_an_unforeseen_error_in_kazoos_thread_is_the_end_of_an_attempt_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread ended, and with it every hope of a session."""
    calls = list[object]()

    def no_memory(_handler: ConnectionHandler, address: object, *_: object, **__: object) -> socket.socket:
        calls.append(address)
        raise MemoryError if len(calls) == 1 else ConnectionRefusedError

    monkeypatch.setattr(ConnectionHandler, "create_connection", no_memory)
    connecting = spawn(connect(zookeeper_settings("127.0.0.1:1", "/any")), "connecting")
    await until(lambda: len(calls) >= 3)
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)


async def test_a_session_outlives_an_unforeseen_error_in_kazoos_thread(
    zookeeper: EmbeddedZooKeeper,
) -> None:
    store = await connect(zookeeper_settings(zookeeper.connect_string, "/any"))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        read, failed = store._client._connection._read_socket, list[object]()

        def no_memory(*_: object) -> object:
            store._client._connection._read_socket = read
            failed.append(None)
            raise MemoryError

        store._client._connection._read_socket = no_memory
        with contextlib.suppress(ConnectionLostError):
            await store.exists("/")
        await until(lambda: store.state is SessionState.CONNECTED)
        assert await store.exists("/") is not None
        assert (failed, store.epoch) == ([None], 1)


async def test_a_session_keeps_its_id_when_the_thread_sees_the_connection_end_first(tmp_path: Path) -> None:
    """An evaluation of the assignment that has all its answers must find its own descriptor."""
    with EmbeddedZooKeeper(tmp_path, tick_time_ms=2000) as own_zookeeper:
        store = await connect(zookeeper_settings(own_zookeeper.connect_string, "/any"))
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(store.close)
            session_id = store.session_id
            assert session_id
            own_zookeeper.kill()
            while store._client.connected:
                time.sleep(0.01)  # the loop does not turn: it has not heard of it
            assert (store.state, store.session_id) == (SessionState.CONNECTED, session_id)
            await until(lambda: store.state is SessionState.SUSPENDED)
            assert store.session_id == session_id
