"""`except WaltzClientError` catches whatever a call of the client raises, and `waltz_client` exports it."""

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import cast

import pytest

import waltz_client
import waltz_client.errors
import waltz_client.sql.errors
import waltz_cluster.errors
import waltz_protocol.errors
from client_tests.conftest import ConnectClient
from client_tests.helpers import settings_for
from waltz_client import ClientSettings, LockId, WaltzClient, WaltzClientError
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing import InProcessLog
from waltz_client.testing.producers import LogProducers
from waltz_cluster.ids import take_id
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import MAX_ID, ClusterParams, Counter
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.types import Endpoint
from waltz_testkit.fake_cluster import FakeCluster

MINIMUM: dict[str, object] = {
    "zookeeper.connectString": "127.0.0.1:1",
    "zookeeper.sessionTimeout": 3000,
    "zookeeper.connectTimeout": 300,
    "cluster.root": "/waltz",
    "client.ssl.enabled": False,
}


def assert_of_the_client(error: BaseException) -> None:
    """One of the hierarchy, exported under its own name, and one line."""
    kind = type(error)
    assert isinstance(error, WaltzClientError), f"{kind.__module__}.{kind.__qualname__}: {error}"
    assert kind.__name__ in waltz_client.__all__
    assert getattr(waltz_client, kind.__name__) is kind
    assert str(error)
    assert "\n" not in str(error)


def classes_of(module: object) -> list[type[Exception]]:
    """The exception classes that a module defines."""
    members = inspect.getmembers(module, inspect.isclass)
    name = cast(str, module.__name__)  # type: ignore[attr-defined]
    return [kind for _, kind in members if issubclass(kind, Exception) and kind.__module__ == name]


def test_every_class_of_the_client_is_exported() -> None:
    for kind in classes_of(waltz_client.errors):
        assert issubclass(kind, WaltzClientError)
        assert kind.__name__ in waltz_client.errors.__all__
        assert kind.__name__ in waltz_client.__all__
        assert getattr(waltz_client, kind.__name__) is kind
    for kind in classes_of(waltz_client.sql.errors):
        assert issubclass(kind, WaltzClientError)
        assert kind.__name__ in waltz_client.sql.__all__


# -- settings: the call itself fails -------------------------------------------------------------------------

WRONG_FILES = {
    "absent": None,
    "not text": b"\xff\xfe",
    "not YAML": b"a: [",
    "a list": b"- a",
    "a key twice": b"a.b: 1\na: {b: 2}",
    "unknown key": b"client.autoMont: true",
    "key missing": b"cluster.root: /waltz",
    "wrong value": b"zookeeper.connectString: a:1\nzookeeper.sessionTimeout: soon\ncluster.root: /waltz",
    "root not absolute": b"zookeeper.connectString: a:1\nzookeeper.sessionTimeout: 1\ncluster.root: waltz",
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_wrong_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "client.yaml"
    content = WRONG_FILES[name]
    if content is not None:
        path.write_bytes(content)
    for read in (ClientSettings.load, ClientSettings.from_file, WaltzClient.connect):
        with pytest.raises(waltz_cluster.errors.ConfigError) as caught:
            read(str(path))
        assert_of_the_client(caught.value)


def test_wrong_mapping() -> None:
    wrong: list[dict[str, object]] = [{"client.autoMont": 1}, {"a.b": 1, "a": {"b": 1}}]
    for mapping in wrong:
        for read in (ClientSettings.load, ClientSettings.from_mapping, WaltzClient.connect):
            with pytest.raises(waltz_cluster.errors.ConfigError) as caught:
                read({**MINIMUM, **mapping} if read is not ClientSettings.from_mapping else {"client.x": 1})
            assert_of_the_client(caught.value)
    with pytest.raises(waltz_cluster.errors.ConfigError) as caught:
        WaltzClient.connect(7)  # type: ignore[arg-type]
    assert_of_the_client(caught.value)
    with pytest.raises(waltz_cluster.errors.ConfigError) as caught:
        ClientSettings.load({**MINIMUM, "zookeeper.auth.file": "/no/such/file"}).credentials()
    assert_of_the_client(caught.value)


# -- entering: what the libraries below raise ----------------------------------------------------------------

UNUSABLE: dict[str, tuple[dict[str, object], type[Exception]]] = {
    "no ZooKeeper": ({}, waltz_cluster.errors.ConnectError),
    "address": ({"zookeeper.connectString": "zk:port"}, waltz_cluster.errors.ConfigError),
    "acl": ({"zookeeper.acl": "creator"}, waltz_cluster.errors.ConfigError),
    "credentials": ({"zookeeper.auth.file": "/no/such/file"}, waltz_cluster.errors.ConfigError),
    "no trust store": ({"client.ssl.enabled": True}, waltz_protocol.errors.TlsSettingsError),
    "trust store absent": (
        {"client.ssl.enabled": True, "client.ssl.trustStore.location": "/no/such/file"},
        waltz_protocol.errors.TlsSettingsError,
    ),
    "trust store not PEM": (
        {"client.ssl.enabled": True, "client.ssl.trustStore.location": __file__},
        waltz_protocol.errors.TlsSettingsError,
    ),
    "key store absent": (
        {
            "client.ssl.enabled": True,
            "client.ssl.allowUnverified": True,
            "client.ssl.keyStore.location": "/no/such/file",
        },
        waltz_protocol.errors.TlsSettingsError,
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
async def test_entering_with_unusable_settings(name: str) -> None:
    keys, kind = UNUSABLE[name]
    settings = {**MINIMUM, **keys}
    with pytest.raises(kind) as caught:  # the class of the library below still catches it
        await WaltzClient.connect(settings).__aenter__()
    assert_of_the_client(caught.value)
    assert isinstance(caught.value, WaltzClientError)
    assert caught.value.user_error is True


def test_entering_a_blocking_client() -> None:
    with pytest.raises(waltz_cluster.errors.ConnectError) as caught:
        BlockingWaltzClient.connect(MINIMUM).__enter__()
    assert_of_the_client(caught.value)
    with pytest.raises(waltz_cluster.errors.ConfigError) as wrong:
        BlockingWaltzClient.connect("/no/such/file").__enter__()
    assert_of_the_client(wrong.value)


async def tree(root: str, *, last_client_id: bytes | None) -> ZooKeeperStore:
    """A cluster's records, with this counter of client ids."""
    store = MemoryZooKeeper().session()
    await store.create(root, ClusterParams("c", 1).to_bytes(), make_parents=True)
    if last_client_id is not None:
        await store.create(ClusterPaths(root).client_ids, last_client_id, make_parents=True)
    return store


@pytest.mark.parametrize("counter", [None, b"", b"\xff", Counter(MAX_ID).to_bytes()])
async def test_entering_an_unusable_cluster(counter: bytes | None) -> None:
    store = await tree("/waltz", last_client_id=counter)
    with pytest.raises(waltz_cluster.errors.ClusterError) as caught:
        await WaltzClient.connect(MINIMUM, store=store).__aenter__()
    assert_of_the_client(caught.value)


async def test_entering_a_wrong_root(cluster: FakeCluster) -> None:
    for root in ("/nothing/here", f"{cluster.root}/ids"):
        settings = {**settings_for(cluster), "cluster.root": root}
        with pytest.raises(waltz_cluster.errors.ClusterNotFoundError) as caught:
            await WaltzClient.connect(settings, store=cluster.session()).__aenter__()
        assert_of_the_client(caught.value)


class Failing:
    """Discovery (as `InProcessLog` is one) whose ids end with an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.cluster_params = ClusterParams("c", 1)

    cluster_key = None
    producers = LogProducers()

    async def new_client_id(self) -> int:
        raise self._error

    def add_endpoints_listener(self, listener: object) -> Callable[[], None]:
        return lambda: None


@pytest.mark.parametrize("kind", classes_of(waltz_cluster.errors), ids=lambda kind: kind.__name__)
async def test_whatever_zookeeper_answers(kind: type[waltz_cluster.errors.ClusterError]) -> None:
    """Every class of the library, also those that entering is not known to meet; what it says of itself
    holds."""
    with pytest.raises(waltz_cluster.errors.ClusterError, match="the reason") as caught:
        await WaltzClient.connect(MINIMUM, discovery=Failing(kind("the reason"))).__aenter__()
    assert_of_the_client(caught.value)
    assert caught.value.user_error is kind.user_error
    if kind in (waltz_cluster.errors.StoreError, *EDGE):
        assert isinstance(caught.value, kind)
    assert caught.value.retriable or not kind.retriable


EDGE = (
    waltz_cluster.errors.AuthError,
    waltz_cluster.errors.ClusterNotFoundError,
    waltz_cluster.errors.ConfigError,
    waltz_cluster.errors.ConnectError,
    waltz_cluster.errors.ConnectionLostError,
)


async def test_the_library_below_keeps_its_classes() -> None:
    """Servers and tools, which have no client, see the library's own."""
    store = await tree("/waltz", last_client_id=None)
    with pytest.raises(waltz_cluster.errors.ClusterNotFoundError) as caught:
        await take_id(store, ClusterPaths("/waltz").client_ids, Random(1))
    assert not isinstance(caught.value, WaltzClientError)


# -- calls ---------------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[WaltzClient], Awaitable[object]]] = {
    "append: partition": lambda c: c.append(partition=9, data=b""),
    "append: data": lambda c: c.append(partition=0, data=cast(bytes, "text")),
    "append: header": lambda c: c.append(partition=0, data=b"", header=2**31),
    "append: lock": lambda c: c.append(partition=0, data=b"", write_locks=[cast(LockId, "a")]),
    "append: view": lambda c: c.append(partition=0, data=b"", as_of=99, write_locks=[LockId("a", 1)]),
    "append: size": lambda c: c.append(partition=0, data=bytes(101)),
    "append: deadline": lambda c: c.append(partition=0, data=b"", deadline_seconds=0),
    "get_data: absent": lambda c: c.get_data(0, 99),
    "get_data: id": lambda c: c.get_data(0, -2),
    "get_data: partition": lambda c: c.get_data(9, 0),
    "get_data: deadline": lambda c: c.get_data(0, 99, deadline_seconds=0),
    "high_water_mark": lambda c: c.high_water_mark(9),
    "writable": lambda c: c.writable(9),
    "set_partitions": lambda c: c.set_partitions([9]),
    "entered twice": lambda c: c.__aenter__(),
    "servers: partition": lambda c: c.servers.add_preferred(Endpoint("127.0.0.1", 1), [9]),
    "servers: none": lambda c: c.servers.add_preferred(Endpoint("127.0.0.1", 1), []),
    "servers: address": lambda c: c.servers.health(Endpoint("127.0.0.1", 1), deadline_seconds=0.1),
    "feed: partition": lambda c: anext(aiter(c.feed(9))),
    "feed: position": lambda c: anext(aiter(c.feed(0, after=-2))),
    "range: partition": lambda c: anext(aiter(c.read_range(9, 0, 1))),
    "range: first": lambda c: anext(aiter(c.read_range(0, -1, 1))),
    "range: absent": lambda c: anext(aiter(c.read_range(0, 50, 60, timeout_seconds=0.5))),
}


@pytest.mark.parametrize("name", CALLS)
async def test_calls(name: str, connect: ConnectClient) -> None:
    client = await connect(maxTransactionBytes=100)
    await client.append(partition=0, data=b"x")
    with pytest.raises(Exception) as caught:
        await CALLS[name](client)
    assert_of_the_client(caught.value)


async def test_calls_of_a_closed_client(connect: ConnectClient) -> None:
    client = await connect()
    await client.close()
    for name in ("append: partition", "get_data: absent", "high_water_mark", "writable", "servers: none"):
        with pytest.raises(WaltzClientError) as caught:
            await CALLS[name](client)
        assert_of_the_client(caught.value)


def test_a_log_for_tests() -> None:
    with pytest.raises(WaltzClientError) as caught:
        InProcessLog(0)
    assert_of_the_client(caught.value)
