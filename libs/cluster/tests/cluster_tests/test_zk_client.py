"""What only real ZooKeeper shows: absence, restarts, silence, credentials; on a server of its own where it is
hurt."""

import asyncio
import contextlib
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kazoo import exceptions as zk

from cluster_tests.conftest import session, zookeeper_settings
from cluster_tests.manager_helpers import Server, seed, until
from waltz_cluster import errors
from waltz_cluster.acl import parse_acl
from waltz_cluster.errors import AuthError, ConfigError, ConnectError, ConnectionLostError
from waltz_cluster.store import SessionEvent, SessionState, ZooKeeperStore
from waltz_cluster.zk_client import CLOSE_SECONDS, GIVE_UP_SESSIONS, KazooStore, connect
from waltz_cluster.zk_connection import ConnectionHandler
from waltz_cluster.zk_errors import map_error
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_testkit.ports import free_port
from waltz_testkit.zookeeper import EmbeddedZooKeeper


async def test_an_absent_zookeeper_is_one_clear_line() -> None:
    port = free_port()
    settings = zookeeper_settings(f"127.0.0.1:{port}", "/any", **{"zookeeper.connectTimeout": 300})
    with pytest.raises(ConnectError) as error:
        await connect(settings)
    assert (
        str(error.value) == f"ZooKeeper at 127.0.0.1:{port} did not answer within 0.3 s: connection refused"
    )
    assert error.value.user_error


async def test_a_zookeeper_whose_name_is_not_known_is_named() -> None:
    port = free_port()
    hosts = f"zk-1.invalid:2181,127.0.0.1:{port},zk-2.invalid:2181"
    settings = zookeeper_settings(hosts, "/any", **{"zookeeper.connectTimeout": 2000})
    with pytest.raises(ConnectError) as error:
        await connect(settings)
    assert str(error.value) == (
        f"ZooKeeper at {hosts} did not answer within 2 s: connection refused, "
        "and the host name zk-1.invalid is not known, and the host name zk-2.invalid is not known"
    )


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_server_that_swallows_everything_gets_its_share_of_the_time_only(tls: bool) -> None:
    """The session would end meanwhile, although other servers serve."""
    context = client_context(TlsSettings(allow_unverified=True)) if tls else None
    handler = ConnectionHandler(context, 0.3, 0.1)
    with nobody_answers(connects=tls) as silent:
        for limit in (0.1, 0.2, 0.3, 0.3) if tls else (0.3, 0.3):
            with pytest.raises(TimeoutError):
                handler.create_connection(silent, "silent", 3600.0)
            assert handler.problem == f"no answer within {limit} s"
            # one that refuses, between the attempts, takes nothing from the time of one that is slow
            with pytest.raises(ConnectionRefusedError):
                handler.create_connection(("127.0.0.1", free_port()), "refuses", 3600.0)


def test_a_connection_that_gives_no_session_takes_nothing_from_the_time_of_a_slow_server() -> None:
    """A member without a quorum takes connections and ends them: one that is slow was never waited for."""
    handler = ConnectionHandler(None, 0.3, 0.1)
    with socket.create_server(("127.0.0.1", 0)) as serves:
        handler.unanswered()
        handler.create_connection(serves.getsockname(), "serves", 3600.0).close()
        assert handler.grown(0.1) == 0.2
        handler.session_given()
        assert handler.grown(0.1) == 0.1


def test_an_address_that_nobody_has_is_not_waited_for_as_long_as_a_session() -> None:
    handler = ConnectionHandler(None, 30.0, 2.5)
    with nobody_answers(connects=False) as silent, pytest.raises(TimeoutError):
        handler.create_connection(silent, "silent", 30.0)
    assert handler.problem == "no answer within 1.5 s"


@contextlib.contextmanager
def nobody_answers(*, connects: bool) -> Iterator[tuple[str, int]]:
    """An address that swallows everything, from the first packet on unless it `connects`."""
    backlog = 16 if connects else 0
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as silent, contextlib.ExitStack() as stack:
        if not connects:  # a connection is made by the kernel, until its queue is full
            for _ in range(4):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(silent.getsockname())
        yield silent.getsockname()


async def test_a_wrong_connect_string_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connectString 'zk:port' is not valid"):
        await connect(zookeeper_settings("zk:port", "/any"))


async def test_callbacks_run_on_the_loop_thread(zookeeper: EmbeddedZooKeeper, root: str) -> None:
    threads: set[int] = set()
    async with session(zookeeper) as store:
        fired = asyncio.Event()

        def callback() -> None:
            threads.add(threading.get_ident())
            fired.set()

        await store.create(root, None)
        await store.get(root, callback)
        await store.set(root, b"x")
        async with asyncio.timeout(5):
            await fired.wait()
    assert threads == {threading.get_ident()}


async def test_a_restart_is_survived_with_the_session_and_its_znodes(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    # longer than a restart takes on a busy machine
    async with session(own_zookeeper, **{"zookeeper.sessionTimeout": 40_000}) as store:
        events: list[SessionEvent] = []
        store.add_session_listener(events.append)
        await store.create("/e", b"x", ephemeral=True)
        fired = asyncio.Event()
        await store.get("/e", fired.set)
        await asyncio.to_thread(own_zookeeper.kill)
        async with asyncio.timeout(10):  # a watch on a lost connection fires
            await fired.wait()
        await until(lambda: store.state is SessionState.SUSPENDED)
        with pytest.raises(ConnectionLostError):
            await store.set("/e", b"y")
        await asyncio.to_thread(own_zookeeper.start)
        await until(lambda: store.state is SessionState.CONNECTED, 20)
        assert (await store.get("/e"))[0] == b"x"
        assert [(e.state, e.epoch) for e in events] == [
            (SessionState.SUSPENDED, 1),
            (SessionState.CONNECTED, 1),
        ]
        assert events[0].last_contact <= events[1].last_contact


class Relay:
    """Between a client and ZooKeeper; it swallows what comes on the connections whose numbers it is given,
    and from connection `late[0]` on the first answer comes `late[1]` seconds late."""

    def __init__(
        self, server: EmbeddedZooKeeper, swallowed: set[int], late: tuple[int, float] = (0, 0.0)
    ) -> None:
        self._address = server.connect_string.split(":")
        self._swallowed = swallowed
        self._late_from, self._late_seconds = late
        self._writers: list[asyncio.StreamWriter] = []
        self.accepted = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        relay = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{relay.sockets[0].getsockname()[1]}"
        finally:
            relay.close()
            self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.append(writer)
        if self.accepted in self._swallowed:
            await reader.read(-1)
            return
        beyond, to_zookeeper = await asyncio.open_connection(*self._address)
        self._writers.append(to_zookeeper)
        late = self._late_seconds if self.accepted >= self._late_from else 0.0
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(self._pass(reader, to_zookeeper, 0.0), self._pass(beyond, writer, late))

    @staticmethod
    async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late: float) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(late)
            late = 0.0
            writer.write(data)
        writer.close()


async def back_in_the_session(relay: Relay) -> list[tuple[SessionState, int]]:
    """What becomes of a session of 9 s whose connection is cut."""
    async with relay.running() as address:
        settings = zookeeper_settings(address, "/any", **{"zookeeper.sessionTimeout": 9_000})
        store = await connect(settings)
        try:
            events: list[SessionEvent] = []
            store.add_session_listener(events.append)
            relay.cut()
            await until(lambda: len(events) == 2, 30)
        finally:
            await store.close()
    return [(event.state, event.epoch) for event in events]


async def test_a_server_that_swallows_the_request_for_the_session_does_not_cost_it(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    """As one that is starting may, and where one name leads to all servers there is one to ask."""
    relay = Relay(own_zookeeper, {2, 3})
    found = await back_in_the_session(relay)
    assert found == [(SessionState.SUSPENDED, 1), (SessionState.CONNECTED, 1)]
    assert relay.accepted == 4


async def test_a_name_that_has_another_address_now_does_not_cost_the_session(
    own_zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod of ZooKeeper is made anew: the address that its name had swallows what is sent there. A server
    gave up its partitions for it, 4.5 s after ZooKeeper served again."""
    relay, real, asked = Relay(own_zookeeper, set()), socket.getaddrinfo, 0
    async with relay.running() as address:
        with nobody_answers(connects=False) as old:
            serving = int(address.partition(":")[2])

            def resolve(host: str, port: int, *more: int) -> object:  # thread
                nonlocal asked
                if host != "zookeeper":
                    return real(host, port, *more)
                asked += 1
                return real("127.0.0.1", old[1] if asked == 2 else serving, *more)

            monkeypatch.setattr(socket, "getaddrinfo", resolve)
            settings = zookeeper_settings("zookeeper:1", "/any", **{"zookeeper.sessionTimeout": 9_000})
            store = await connect(settings)
            try:
                events: list[SessionEvent] = []
                store.add_session_listener(events.append)
                relay.cut()
                await until(lambda: len(events) == 2, 8.0)  # the wait of before was the session's 9 s
            finally:
                await store.close()
    assert asked == 3
    assert [event.state for event in events] == [SessionState.SUSPENDED, SessionState.CONNECTED]


async def test_a_slow_answer_does_not_cost_the_session(own_zookeeper: EmbeddedZooKeeper) -> None:
    """When all clients come back at once, say."""
    found = await back_in_the_session(Relay(own_zookeeper, set(), late=(2, 2.5)))
    assert found == [(SessionState.SUSPENDED, 1), (SessionState.CONNECTED, 1)]


async def test_a_zookeeper_that_needs_long_to_begin_a_session_is_reached(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    """Asked for sessions of 1.5 s, it needs 0.8 s to begin one."""
    relay = Relay(own_zookeeper, set(), late=(1, 0.8))
    async with relay.running() as address:
        keys = {"zookeeper.sessionTimeout": 1_500, "zookeeper.connectTimeout": 30_000}
        store = await connect(zookeeper_settings(address, "/any", **keys))
        await store.close()
    assert relay.accepted <= 6


def kazoo_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "zk_loop" in thread.name}


@pytest.mark.parametrize("connected", [True, False])
async def test_the_end_of_a_session_is_not_waited_for_longer_than_two_seconds(
    own_zookeeper: EmbeddedZooKeeper, connected: bool
) -> None:
    """Its ZooKeeper is frozen, or swallows the request for the session; and no thread stays behind."""
    before = kazoo_threads()
    relay = Relay(own_zookeeper, {2, 3, 4, 5})
    async with relay.running() as address:
        settings = zookeeper_settings(address, "/any", **{"zookeeper.sessionTimeout": 40_000})
        store = await connect(settings)
        if connected:
            await asyncio.to_thread(own_zookeeper.pause)
        else:
            relay.cut()
            await until(lambda: relay.accepted == 2)
        async with asyncio.timeout(CLOSE_SECONDS + 5.0):
            await store.close()
        await until(lambda: kazoo_threads() <= before, 10.0)


async def test_who_gives_up_connecting_does_not_wait_for_it(own_zookeeper: EmbeddedZooKeeper) -> None:
    relay = Relay(own_zookeeper, set(range(1, 100)))
    async with relay.running() as address:
        connecting = spawn(connect(zookeeper_settings(address, "/any")), "connecting")
        await until(lambda: relay.accepted == 1)
        connecting.cancel()
        async with asyncio.timeout(CLOSE_SECONDS + 5.0):
            with pytest.raises(asyncio.CancelledError):
                await connecting


async def test_zookeeper_6_08_a_write_without_an_answer_is_not_repeated(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    async with session(own_zookeeper) as store:
        await store.create("/counter", b"0")
        await asyncio.to_thread(own_zookeeper.pause)
        write = asyncio.gather(store.set("/counter", b"1"), return_exceptions=True)
        await until(lambda: store.state is SessionState.SUSPENDED, 20)
        (outcome,) = await write
        assert isinstance(outcome, ConnectionLostError)
        await asyncio.to_thread(own_zookeeper.unpause)
        await until(lambda: store.state is SessionState.CONNECTED, 20)
        _, stat = await store.get("/counter")
        assert stat.version in (0, 1)  # unknown, but never twice


async def test_an_expired_session_is_lost_then_followed_by_a_new_epoch(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    async with session(own_zookeeper) as store, session(own_zookeeper) as other:
        events: list[SessionEvent] = []
        store.add_session_listener(events.append)
        await store.create("/e", None, ephemeral=True)
        old = store.session_id
        await expire(own_zookeeper, store)
        await until(lambda: len(events) >= 3 and events[-1].state is SessionState.CONNECTED, 20)
        assert [(e.state, e.epoch) for e in events][-2:] == [
            (SessionState.LOST, 1),
            (SessionState.CONNECTED, 2),
        ]
        assert store.epoch == 2
        assert store.session_id != old
        assert await other.exists("/e") is None
        assert await store.create("/e", None, ephemeral=True) == "/e"


@pytest.mark.parametrize("gives_up", [True, False])
async def test_a_zookeeper_that_has_lost_its_data_is_followed_by_who_gives_up_only(
    own_zookeeper: EmbeddedZooKeeper, tmp_path: Path, gives_up: bool
) -> None:
    """It refuses whoever has seen later changes than it has."""
    settings = zookeeper_settings(own_zookeeper.connect_string, "/any")
    store = await connect(settings, gives_up=gives_up)
    try:
        for number in range(30):
            await store.create(f"/seen-{number}", None)
        await asyncio.to_thread(own_zookeeper.kill)
        shutil.rmtree(tmp_path / "own" / "version-2")
        await asyncio.to_thread(own_zookeeper.start)
        if gives_up:
            await until(lambda: store.state is SessionState.CONNECTED and store.epoch == 2, 30)
            assert await store.exists("/seen-0") is None
        else:
            await asyncio.sleep((GIVE_UP_SESSIONS + 1) * store.session_timeout_seconds)
            assert (store.state, store.epoch) == (SessionState.SUSPENDED, 1)
    finally:
        await store.close()


async def expire(server: EmbeddedZooKeeper, store: KazooStore) -> None:
    """End a session from outside: connect with its id and password, and say goodbye."""
    from kazoo.client import KazooClient

    def close_it() -> None:
        twin = KazooClient(hosts=server.connect_string, client_id=store._client.client_id)
        twin.start(timeout=10)
        twin.stop()
        twin.close()

    await asyncio.to_thread(close_it)


async def test_safety_d8_on_real_zookeeper(own_zookeeper: EmbeddedZooKeeper) -> None:
    """The server process goes silent: partitions are given up within the session timeout, and come back after
    it."""
    async with session(own_zookeeper) as setup, session(own_zookeeper) as store:
        await seed(setup, "/w", 2)
        server = await Server(store, "/w", 8001).start()
        await until(lambda: len(server.partitions) == 2)
        loop = asyncio.get_running_loop()
        paused_at = loop.time()
        await asyncio.to_thread(own_zookeeper.pause)
        await until(lambda: server.partitions == {}, 10)
        assert loop.time() - paused_at <= store.session_timeout_seconds + 1.5
        await asyncio.to_thread(own_zookeeper.unpause)
        await until(lambda: len(server.partitions) == 2, 20)
        await server.stop()


async def test_the_heartbeat_keeps_contact_fresh(zookeeper: EmbeddedZooKeeper) -> None:
    async with session(zookeeper) as store:
        loop = asyncio.get_running_loop()
        first = store.last_contact
        await until(lambda: store.last_contact > first, 5)
        assert loop.time() - store.last_contact < store.session_timeout_seconds / 2


async def test_zookeeper_6_14_digest_credentials_and_acls(zookeeper: EmbeddedZooKeeper, root: str) -> None:
    mine = {"zookeeper.auth": "waltz:sesame", "zookeeper.acl": "creator"}
    async with session(zookeeper, **mine) as owner, session(zookeeper) as stranger:
        await owner.create(root, b"secret")
        await owner.transaction([])
        with pytest.raises(AuthError) as error:
            await stranger.get(root)
        assert "zookeeper.auth" in str(error.value)
        with pytest.raises(AuthError):
            await stranger.set(root, b"mine now")
        await seed(owner, f"{root}/cluster", 1)
        with pytest.raises(AuthError):
            await stranger.get(f"{root}/cluster/ids")
        async with session(zookeeper, **{"zookeeper.auth": "waltz:sesame"}) as again:
            assert (await again.get(root))[0] == b"secret"
        async with session(zookeeper, **{"zookeeper.auth": "waltz:wrong"}) as wrong:
            with pytest.raises(AuthError):
                await wrong.get(root)


async def test_zookeeper_6_14_readable_by_the_world(zookeeper: EmbeddedZooKeeper, root: str) -> None:
    mine = {"zookeeper.auth": "waltz:sesame", "zookeeper.acl": "creator-world-read"}
    async with session(zookeeper, **mine) as owner, session(zookeeper) as stranger:
        await owner.create(root, b"open book")
        assert (await stranger.get(root))[0] == b"open book"
        with pytest.raises(AuthError):
            await stranger.set(root, b"")


def test_acl_settings() -> None:
    assert len(parse_acl("open", has_credentials=False)) == 1
    both = parse_acl("world:anyone:r, digest:u:aGFzaA==:cdrwa", has_credentials=False)
    assert [(acl.perms, acl.id.scheme, acl.id.id) for acl in both] == [
        (1, "world", "anyone"),
        (31, "digest", "u:aGFzaA=="),
    ]
    for wrong in ("closed", "world:anyone:x", "world", ":a:r", ""):
        with pytest.raises(ConfigError, match=r"zookeeper\.acl"):
            parse_acl(wrong, has_credentials=True)
    with pytest.raises(ConfigError, match=r"needs zookeeper\.auth"):
        parse_acl("creator", has_credentials=False)


def test_foreign_errors_are_mapped_at_one_door() -> None:
    for foreign, ours in (
        (zk.NoNodeError(), errors.NoNodeError),
        (zk.ConnectionLoss(), errors.ConnectionLostError),
        (zk.SessionExpiredError(), errors.SessionLostError),
        (zk.ConnectionClosedError(), errors.SessionLostError),
        (zk.NoAuthError(), errors.AuthError),
        (zk.MarshallingError(), errors.ConnectionLostError),
        (RuntimeError("?"), errors.ConnectionLostError),
    ):
        assert type(map_error(foreign, "get /x")) is ours


async def test_stale_epochs_are_dropped_on_the_loop(zookeeper: EmbeddedZooKeeper) -> None:
    async with session(zookeeper) as store:
        events: list[SessionEvent] = []
        store.add_session_listener(events.append)
        store._deliver(SessionState.LOST, 0, 0)
        assert store.state is SessionState.CONNECTED
        assert events == []


def test_both_stores_are_stores(zookeeper: EmbeddedZooKeeper) -> None:
    def accepts(store: ZooKeeperStore) -> None: ...

    from waltz_cluster.memory_store import MemoryStore

    for cls in (KazooStore, MemoryStore):
        assert callable(accepts)
        assert {"get", "get_children", "exists", "create", "set", "delete", "transaction", "close"} <= set(
            dir(cls)
        )
