"""Certificates of a running cluster are replaced, its authority too: no process is restarted, and one
connection lives through all of it."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.processes import waltz
from waltz_client import WaltzClient
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_tools.certificates import CertificateFolder, CertificateRole, Wanted
from waltz_tools.local import LocalCluster, LocalSettings
from waltz_tools.local.http import get

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

HOST = "127.0.0.1"
CHANGED = "new certificates are in use"
SERVICES = ("server-1", "storage-1")
FOLDERS = {"server-1": "h1", "storage-1": "s1"}


def _mutual(prefix: str, folder: Path) -> dict[str, object]:
    places = {f"{prefix}.{store}.location": str(folder) for store in ("keyStore", "trustStore")}
    return {**places, f"{prefix}.allowUnverified": None}


def _cluster(directory: Path, tls: Path) -> LocalCluster:
    overrides = {
        "server": _mutual("server.ssl", tls / "h1"),
        "storage": _mutual("storage.ssl", tls / "s1"),
        "client": {**_mutual("client.ssl", tls / "orders"), **_mutual("ssl", tls / "admin")},
    }
    settings = LocalSettings(
        directory, partitions=1, servers=1, storage_nodes=1, tls=True, overrides=overrides
    )
    return LocalCluster(settings)


def _folder(tls: Path) -> CertificateFolder:
    return CertificateFolder(tls, time.time())


async def _expiry(cluster: LocalCluster, role: str) -> float:
    """What the process says of the certificate in use."""
    _, body = await get(cluster.port(role, "http"), "/metrics", accept="text/plain")
    name = f"waltz_{role.partition('-')[0]}_tls_certificate_expiry_timestamp_seconds"
    return next(
        float(line.rpartition(" ")[2]) for line in body.decode().splitlines() if line.startswith(name)
    )


async def _in_use(cluster: LocalCluster, tls: Path) -> None:
    """Both services have what is in their folders."""
    shown = {each.name: each.info.not_after for each in _folder(tls).show()}
    async with asyncio.timeout(60):
        while any([await _expiry(cluster, role) != shown[FOLDERS[role]] for role in SERVICES]):
            await asyncio.sleep(0.2)


def _changes(cluster: LocalCluster, role: str) -> int:
    return cluster.log_path(role).read_text().count(CHANGED)


async def _logged(cluster: LocalCluster, role: str, text: str, times: int) -> None:
    async with asyncio.timeout(60):
        while cluster.log_path(role).read_text().count(text) < times:
            await asyncio.sleep(0.2)


async def test_certificates_and_authority_of_a_running_cluster(tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    wanted = [
        Wanted(CertificateRole.SERVER, "h1", (HOST,)),
        Wanted(CertificateRole.STORAGE, "s1", (HOST,)),
        Wanted(CertificateRole.CLIENT, "orders", ("orders",)),
        Wanted(CertificateRole.TOOLS, "admin", ("admin",)),
    ]
    _folder(tls).init("demo", wanted, 10)
    async with _cluster(tmp_path / "cluster", tls) as cluster:
        config = cluster.client_config
        pids = [cluster.pid(role) for role in SERVICES]
        async with WaltzClient.connect(config) as client:

            async def works() -> None:
                """An old connection and new ones."""
                await client.append(partition=0, data=b"old")
                appended = await waltz("append", "-c", str(config), "-p", "0", "--data", "new")
                assert appended.code == 0, appended.err

            await works()
            _folder(tls).renew((), 20)
            await _in_use(cluster, tls)
            await works()

            good = (tls / "h1" / "tls.crt").read_bytes()
            (tls / "h1" / "tls.crt").write_bytes(good[:200])
            await _logged(cluster, "server-1", "the certificates in use stay as they are", 1)
            await works()
            (tls / "h1" / "tls.crt").write_bytes(good)
            await _logged(cluster, "server-1", CHANGED, 2)

            old = (tls / "authority" / "ca.crt").read_bytes()
            steps: tuple[Callable[[], object], ...] = (
                lambda: _folder(tls).replace_authority(None),
                lambda: _folder(tls).renew((), 40),
                lambda: _folder(tls).drop_old_authority(),
            )
            for step in steps:
                before = {role: _changes(cluster, role) for role in SERVICES}
                step()
                for role in SERVICES:
                    await _logged(cluster, role, CHANGED, before[role] + 1)
                await _in_use(cluster, tls)
                await works()
            assert [cluster.pid(role) for role in SERVICES] == pids

            # The server as a client of the storage node: a connection made anew takes the new authority.
            await cluster.restart_role("storage-1")
            await works()

        (tmp_path / "old.crt").write_bytes(old)
        late = client_context(TlsSettings(trust_store=str(tmp_path / "old.crt")))
        with pytest.raises(OSError, match="certificate verify failed"):
            await asyncio.open_connection(HOST, cluster.port("server-1", "server"), ssl=late)
