"""Mistakes of a person: one clear line, the right class, nothing sent."""

from pathlib import Path

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import settings_for
from waltz_client import (
    ClientSettings,
    LockId,
    PartitionNotFoundError,
    TransactionTooLargeError,
    UsageError,
    WaltzClient,
)
from waltz_cluster.errors import ClusterNotFoundError, ConfigError, ConnectError
from waltz_protocol.errors import TlsSettingsError
from waltz_protocol.frames.append import MAX_LOCKS
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.fake_server import Fate

MINIMUM: dict[str, object] = {
    "zookeeper.connectString": "127.0.0.1:1",
    "zookeeper.sessionTimeout": "3000",
    "cluster.root": "/waltz",
}


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text
    assert "\n" not in text
    return text


async def test_unknown_partition(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    for bad in (2, -1):
        with pytest.raises(PartitionNotFoundError, match=f"partition {bad} does not exist") as caught:
            await client.append(partition=bad, data=b"x")
        one_line(caught.value)
        with pytest.raises(PartitionNotFoundError):
            client.feed(bad)
        with pytest.raises(PartitionNotFoundError):
            await client.high_water_mark(bad)
    with pytest.raises(UsageError):
        await client.append(partition="0", data=b"x")  # type: ignore[arg-type]


async def test_oversized_data(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect(maxTransactionBytes=100)
    with pytest.raises(
        TransactionTooLargeError, match=r"101 bytes is larger than client\.maxTransactionBytes"
    ):
        await client.append(partition=0, data=b"x" * 101)
    await client.append(partition=0, data=b"x" * 100)
    assert len(cluster.partitions[0].received) == 1


async def test_too_many_locks(cluster: FakeCluster, connect: ConnectClient) -> None:
    """Of all kinds together; said before anything is sent, and the default is the servers'."""
    assert ClientSettings.load(MINIMUM).max_locks == MAX_LOCKS
    client = await connect(maxLocksPerAppend=10)
    locks = [LockId("row", n) for n in range(11)]
    message = r"11 locks: more than client\.maxLocksPerAppend \(10\)"
    for write, read, append in ((11, 0, 0), (4, 4, 3)):
        with pytest.raises(TransactionTooLargeError, match=message):
            await client.append(
                partition=0,
                data=b"x",
                write_locks=locks[:write],
                read_locks=locks[:read],
                append_locks=locks[:append],
                as_of=-1,
            )
    await client.append(partition=0, data=b"x", write_locks=locks[:4], append_locks=locks[:6], as_of=-1)
    assert len(cluster.partitions[0].received) == 1


async def test_wrong_arguments(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    with pytest.raises(UsageError, match="header 2147483648"):
        await client.append(partition=0, data=b"x", header=2**31)
    with pytest.raises(UsageError, match="data must be bytes"):
        await client.append(partition=0, data="x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="LockId"):
        await client.append(partition=0, data=b"x", write_locks=["a"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="as_of"):
        await client.append(partition=0, data=b"x", as_of=-2)
    with pytest.raises(UsageError, match="at least one partition"):
        client.feed([])
    with pytest.raises(UsageError, match="after"):
        client.feed(0, after=-5)
    assert cluster.partitions[0].received == []
    await client.append(partition=0, data=bytes(3), read_locks=[LockId("a", -1)])


async def test_zookeeper_absent() -> None:
    settings = {**MINIMUM, "zookeeper.connectTimeout": 300, "client.ssl.enabled": False}
    with pytest.raises(ConnectError) as caught:
        async with WaltzClient.connect(settings):
            pass
    assert "127.0.0.1:1" in one_line(caught.value)


async def test_root_missing(cluster: FakeCluster) -> None:
    settings = {**settings_for(cluster), "cluster.root": "/nothing/here"}
    with pytest.raises(ClusterNotFoundError, match="/nothing/here") as caught:
        async with WaltzClient.connect(settings, store=cluster.session()):
            pass
    one_line(caught.value)


def test_unknown_option_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"client\.autoMont.*did you mean client\.autoMount") as caught:
        ClientSettings.load({**MINIMUM, "client.autoMont": True})
    one_line(caught.value)


def test_missing_and_wrong_values() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.root is required"):
        ClientSettings.load({k: v for k, v in MINIMUM.items() if k != "cluster.root"})
    with pytest.raises(ConfigError, match=r"client\.maxConcurrentTransactions = 0"):
        ClientSettings.load({**MINIMUM, "client.maxConcurrentTransactions": 0})
    with pytest.raises(ConfigError, match=r"client\.numTransactionRetryThreads = 1000000: .*1000"):
        ClientSettings.load({**MINIMUM, "client.numTransactionRetryThreads": 10**6})
    for key in ("appendDeadline", "requestDeadline", "prefetchBytes"):
        with pytest.raises(ConfigError, match=rf"client\.{key} = .*at most 9223372036854775807") as caught:
            ClientSettings.load({**MINIMUM, f"client.{key}": 10**400})
        one_line(caught.value)
    with pytest.raises(ConfigError, match=r"client\.longWaitThreshold"):
        ClientSettings.load({**MINIMUM, "client.longWaitThreshold": "soon"})
    with pytest.raises(ConfigError, match=r"cannot read configuration file /no/such\.yaml"):
        ClientSettings.load("/no/such.yaml")
    with pytest.raises(ConfigError, match="not int"):
        ClientSettings.load(7)  # type: ignore[arg-type]


def test_keys_of_0_13_2_nested_or_dotted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "client.yaml"
    path.write_text(
        """
zookeeper:
  connectString: zk:2181
  sessionTimeout: "30000"
cluster.root: /waltz_cluster
client:
  autoMount: "false"
  numTransactionRetryThreads: 2
  numConsumerThreads: 10
  longWaitThreshold: 4000
  maxConcurrentTransactions: "7"
  ssl:
    keyStore.location: /etc/waltz/key.pem
    keyStore.password: secret
    keyStore.type: PKCS12
    trustStore: {location: /etc/waltz/trust.pem, password: secret, type: JKS}
    keyManager.algorithm: SunX509
ssl.trustStore.location: /for/the/command/line
"""
    )
    settings = ClientSettings.load(str(path))
    assert settings.zookeeper_session_timeout_ms == 30000
    assert not settings.auto_mount
    assert settings.retry_workers == 2
    assert settings.long_wait_threshold_ms == 4000
    assert settings.max_concurrent_transactions == 7
    assert settings.tls_settings("client.ssl").trust_store == "/etc/waltz/trust.pem"
    assert "client.numConsumerThreads is accepted but has no effect" in caplog.text
    assert ClientSettings.load(settings) is settings
    defaults = ClientSettings.load(MINIMUM)
    assert defaults.auto_mount
    assert (defaults.max_concurrent_transactions, defaults.retry_workers) == (1000, 1)


async def test_unverified_tls_must_be_chosen(cluster: FakeCluster) -> None:
    settings = {k: v for k, v in settings_for(cluster).items() if not k.startswith("client.ssl")}
    with pytest.raises(TlsSettingsError, match="allowUnverified") as caught:
        async with WaltzClient.connect(settings, store=cluster.session()):
            pass
    one_line(caught.value)


async def test_a_client_is_entered_before_use_and_once(cluster: FakeCluster) -> None:
    client = WaltzClient.connect(settings_for(cluster), store=cluster.session())
    with pytest.raises(UsageError, match="enter the client first"):
        await client.append(partition=0, data=b"x")
    async with client:
        with pytest.raises(UsageError, match="entered once"):
            async with client:
                pass


@pytest.mark.parametrize("wrong", ["1", 1.0, True, -1])
async def test_a_number_of_attempts_that_is_none(
    cluster: FakeCluster, connect: ConnectClient, wrong: int
) -> None:
    """Before, a number that no attempt has, such as a text, meant as many as the deadline allows."""
    client = await connect()
    cluster.partitions[0].fate = lambda append: Fate.DROP
    with pytest.raises(UsageError, match="max_attempts") as caught:
        await client.append(partition=0, data=b"x", max_attempts=wrong, deadline_seconds=1)
    one_line(caught.value)
    assert not cluster.partitions[0].received
