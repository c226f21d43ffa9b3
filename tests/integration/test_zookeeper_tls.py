"""TLS between every role and a real ZooKeeper that asks for certificates, and what must be refused."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.authority import PASSWORD, Authority
from tests.integration.processes import Patient, waltz
from waltz_client import WaltzClient
from waltz_client.errors import ConnectError as ClientConnectError
from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.errors import ConfigError, ConnectError
from waltz_cluster.store import ZooKeeperStore
from waltz_cluster.zk_client import connect
from waltz_testkit.ports import free_port
from waltz_testkit.zookeeper import EmbeddedZooKeeper
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def zookeeper(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """Its certificate is for 127.0.0.1 only."""
    with EmbeddedZooKeeper(
        tmp_path_factory.mktemp("zookeeper"),
        key_store=authority.pem("zookeeper", "127.0.0.1"),
        trust_store=authority.trust_store,
    ) as server:
        yield server


def keys(zookeeper: EmbeddedZooKeeper, authority: Authority, **more: object) -> dict[str, object]:
    return {
        "zookeeper.connectString": f"127.0.0.1:{zookeeper.secure_port}",
        "zookeeper.ssl.trustStore.location": authority.trust_store,
        "zookeeper.ssl.keyStore.location": authority.pkcs12("anyone"),
        "zookeeper.ssl.keyStore.password": PASSWORD,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


@contextlib.asynccontextmanager
async def session(flat: dict[str, object]) -> AsyncIterator[ZooKeeperStore]:
    settings = {"zookeeper.sessionTimeout": 4000, "zookeeper.connectTimeout": 10_000, "cluster.root": "/any"}
    store = await connect(ZooKeeperSettings.from_mapping(settings | flat))
    try:
        yield store
    finally:
        await store.close()


async def refused(flat: dict[str, object], words: str) -> None:
    with pytest.raises(ConnectError, match=words):
        async with session(flat):
            pass


async def test_every_role_works_with_nothing_but_tls(
    zookeeper: EmbeddedZooKeeper, authority: Authority, tmp_path: Path
) -> None:
    own = keys(zookeeper, authority)
    settings = LocalSettings(
        tmp_path,
        partitions=1,
        servers=1,
        storage_nodes=1,
        overrides={"storage": own, "server": own, "client": own},
    )
    async with LocalCluster(settings) as cluster:
        patient = Patient(cluster)
        await patient.is_unharmed()
        verified = await waltz("cluster", "verify", "-c", str(cluster.client_config))
        assert verified.code == 0, verified.err
        plain = patient.client(tmp_path, zookeeper__ssl__enabled=False, zookeeper__connectTimeout=8000)
        ended = await waltz("cluster", "status", "-c", plain)
        assert "ended the connection; does it expect TLS" in ended.one_error()
        with pytest.raises(ClientConnectError, match="does it expect TLS"):
            async with WaltzClient.connect(plain):
                pass


async def test_many_requests_at_once_and_a_restart(
    zookeeper: EmbeddedZooKeeper, authority: Authority
) -> None:
    """Answers that share a record of TLS are all seen at once, and the session outlives its connection."""
    async with session(keys(zookeeper, authority, zookeeper__sessionTimeout=20_000)) as store:
        began = asyncio.get_running_loop().time()
        await store.create("/many", None)
        made = await asyncio.gather(
            *(store.create("/many/n", b"x" * 1000, ephemeral=True, sequential=True) for _ in range(2000))
        )
        assert len(set(made)) == 2000
        names, _ = await store.get_children("/many")
        assert len(names) == 2000
        assert asyncio.get_running_loop().time() - began < 20, "no answer waited for a heartbeat"
        own = store.session_id
        await asyncio.to_thread(zookeeper.stop)
        await asyncio.to_thread(zookeeper.start)
        async with asyncio.timeout(20):
            while store.state.value != "connected":
                await asyncio.sleep(0.05)
        assert store.session_id == own
        assert len((await store.get_children("/many"))[0]) == 2000


async def test_what_is_refused_says_why(
    zookeeper: EmbeddedZooKeeper, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    own = keys(zookeeper, authority)
    nowhere = f"127.0.0.1:{free_port()}"
    shown = stranger.pkcs12("stranger")
    await asyncio.gather(
        refused(
            own | {"zookeeper.ssl.trustStore.location": stranger.trust_store},
            "is not accepted: unable to get",
        ),
        refused(own | {"zookeeper.connectString": f"localhost:{zookeeper.secure_port}"}, "Hostname mismatch"),
        refused(own | {"zookeeper.connectString": zookeeper.connect_string}, "TLS failed|reset"),
        refused(own | {"zookeeper.ssl.keyStore.location": shown}, "ended the connection|TLS failed|reset"),
        refused(own | {"zookeeper.connectString": nowhere}, "did not answer within 10 s: connection refused"),
    )


async def test_settings_that_protect_nothing_are_refused(
    zookeeper: EmbeddedZooKeeper, authority: Authority
) -> None:
    own = keys(zookeeper, authority, zookeeper__ssl__trustStore__location=None)
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.trustStore\.location is not set"):
        async with session(own):
            pass
    with pytest.raises(ConfigError, match=r"unknown key zookeeper\.ssl\.truststore"):
        ZooKeeperSettings.from_mapping(own | {"zookeeper.ssl.truststore": "x"})
    async with session(own | {"zookeeper.ssl.allowUnverified": True}):
        pass
