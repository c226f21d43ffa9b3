"""A connect string that names a znode, which all paths are below."""

import uuid

import pytest

from cluster_tests.conftest import zookeeper_settings
from waltz_cluster.errors import NoNodeError
from waltz_cluster.zk_client import connect
from waltz_testkit.zookeeper import EmbeddedZooKeeper


async def test_the_znode_is_created_where_parents_are(zookeeper: EmbeddedZooKeeper) -> None:
    chroot, servers = f"/tenants/{uuid.uuid4().hex}", zookeeper.connect_string
    store = await connect(zookeeper_settings(servers + chroot, "/any"))
    outside = await connect(zookeeper_settings(servers, "/any"))
    try:
        with pytest.raises(NoNodeError):
            await store.create("/ledger", b"1")
        assert await store.create("/ledger/x", b"1", make_parents=True) == "/ledger/x"
        assert (await outside.get(f"{chroot}/ledger/x"))[0] == b"1"
        assert await outside.exists("/ledger") is None
    finally:
        await store.close()
        await outside.close()
