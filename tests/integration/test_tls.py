"""TLS between real processes: strict mutual TLS for every role, and everything that must be refused, in one
clear line."""

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

import waltz_client.client as client_module
from tests.integration.authority import PASSWORD, Authority
from tests.integration.processes import SERVER, Patient, run_program, waltz
from tests.integration.replicas import administrator, compare_replicas
from waltz_client import WaltzClient
from waltz_cluster.cluster_params import read_store_params
from waltz_protocol.aio.storage_connection import StorageConnection
from waltz_protocol.aio.tls import ClientTls, TlsSettings, client_context
from waltz_protocol.errors import TlsSettingsError
from waltz_tools.local import LocalCluster, LocalSettings
from waltz_tools.local.http import get_json

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

HOST = "127.0.0.1"


@dataclass
class Secured:
    """A cluster whose roles all show certificates of `ours` and accept no others."""

    patient: Patient
    ours: Authority
    theirs: Authority

    def client(self, path: Path, **changes: object) -> str:
        return self.patient.client(path, **changes)


def mutual(prefix: str, authority: Authority, key_store: str) -> dict[str, object]:
    keys: dict[str, object] = {
        f"{prefix}.keyStore.location": key_store,
        f"{prefix}.trustStore.location": authority.trust_store,
        f"{prefix}.allowUnverified": None,
    }
    if key_store.endswith(".p12"):
        keys |= {f"{prefix}.keyStore.password": PASSWORD, f"{prefix}.keyStore.type": "PKCS12"}
    return keys


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    keys = tmp_path_factory.mktemp("keys")
    ours, theirs = Authority(keys), Authority(keys, "stranger")
    person = ours.pem("client")
    overrides = {
        "storage": mutual("storage.ssl", ours, ours.pkcs12("storage", HOST)),
        "server": {
            **mutual("server.ssl", ours, ours.pem("server", HOST)),
            **mutual("storage.ssl", ours, ours.pem("server-as-client")),
        },
        "client": {**mutual("client.ssl", ours, person), **mutual("ssl", ours, ours.pkcs12("tools"))},
    }
    settings = LocalSettings(
        tmp_path_factory.mktemp("cluster"),
        partitions=1,
        servers=1,
        storage_nodes=3,
        tls=True,
        overrides=overrides,
    )
    async with LocalCluster(settings) as cluster:
        patient = Patient(cluster)
        await patient.is_unharmed()
        yield Secured(patient, ours, theirs)
        await patient.is_unharmed()
        assert await compare_replicas(cluster) == patient.count


async def test_strict_mutual_tls_in_every_role(secured: Secured) -> None:
    """Client, server, storage node and command all show a certificate and check the other's, host name
    included."""
    await secured.patient.is_unharmed()
    config = str(secured.patient.cluster.client_config)
    verified = await waltz("cluster", "verify", "-c", config)
    assert verified.code == 0, verified.err
    validated = await waltz("storage", "validate", "-c", config)
    assert validated.code == 0, validated.err
    for role in ("storage-1", "server-1", "client"):
        text = secured.patient.cluster.config_path(role).read_text()
        assert "allowUnverified" not in text
        assert "trustStore" in text


async def test_a_wrong_authority_is_refused_in_one_line(secured: Secured, tmp_path: Path) -> None:
    config = secured.client(
        tmp_path,
        client__ssl__trustStore__location=secured.theirs.trust_store,
        ssl__trustStore__location=secured.theirs.trust_store,
    )
    append = await waltz("append", "-c", config, "--data", "x", "--deadline", "10")
    assert "certificate is not accepted" in append.one_error()
    listed = await waltz("storage", "max-transaction-id", "-c", config, *_node(secured), "-p", "0")
    assert "certificate is not accepted" in listed.one_error()


def _node(secured: Secured) -> tuple[str, ...]:
    cluster = secured.patient.cluster
    return ("-s", str(cluster.admin_endpoint("storage-1")), "-sp", str(cluster.port("storage-1", "storage")))


async def test_a_certificate_of_a_wrong_authority_is_refused_by_server_and_storage_node(
    secured: Secured, tmp_path: Path
) -> None:
    """Shown a certificate of somebody else, or none at all."""
    stranger = secured.theirs.pem("client")
    for shown in (stranger, None):
        config = secured.client(
            tmp_path, client__ssl__keyStore__location=shown, ssl__keyStore__location=shown
        )
        append = await waltz("append", "-c", config, "--data", "x", "--deadline", "2")
        append.one_error()
        admin = str(secured.patient.cluster.admin_endpoint("storage-1"))
        assigned = await waltz("storage", "add-partition", "-c", config, "-s", admin, "-p", "0")
        assert admin in assigned.one_error()


async def test_a_wrong_host_name_is_refused_unless_told_otherwise(secured: Secured, tmp_path: Path) -> None:
    """A storage node whose certificate names another host: nothing reaches it, the quorum of the others
    continues."""
    cluster, ours = secured.patient.cluster, secured.ours
    cluster.override(
        "storage-3", {"storage.ssl.keyStore.location": ours.pkcs12("misnamed", "storage.example")}
    )
    await cluster.restart_role("storage-3")
    config = str(cluster.client_config)
    admin = str(cluster.admin_endpoint("storage-3"))
    refused = await waltz("storage", "add-partition", "-c", config, "-s", admin, "-p", "0")
    assert "certificate is not accepted" in refused.one_error()
    assert "IP address mismatch" in refused.one_error()
    await secured.patient.is_unharmed()
    lenient = secured.client(tmp_path, ssl__verifyHostName=False)
    assert (await waltz("storage", "add-partition", "-c", lenient, "-s", admin, "-p", "0")).code == 0
    cluster.override("storage-3", {"storage.ssl.keyStore.location": ours.pkcs12("storage", HOST)})
    await cluster.restart_role("storage-3")
    async with administrator(cluster) as administration:
        await administration.wait_complete()


async def test_a_server_with_a_wrong_authority_for_storage_nodes_says_so_in_its_health(
    secured: Secured,
) -> None:
    cluster = secured.patient.cluster
    cluster.override("server-1", {"storage.ssl.trustStore.location": secured.theirs.trust_store})
    await cluster.restart_role("server-1")
    try:
        status, body = await get_json(cluster.port("server-1", "http"), "/health")
        while "certificate is not accepted" not in str(body):
            status, body = await get_json(cluster.port("server-1", "http"), "/health")
        assert status == 500
        assert body["server-health-check"]["partitions"] == {"0": False}
    finally:
        cluster.override("server-1", {"storage.ssl.trustStore.location": secured.ours.trust_store})
        await cluster.restart_role("server-1")


async def test_unverified_certificates_need_an_explicit_word(secured: Secured, tmp_path: Path) -> None:
    nothing = {f"{prefix}__trustStore__location": None for prefix in ("client__ssl", "ssl")}
    config = secured.client(tmp_path, **nothing)
    append = await waltz("append", "-c", config, "--data", "x")
    assert "set it, or client.ssl.allowUnverified: true" in append.one_error()
    server = secured.patient.config(
        tmp_path, "server-1", server__ssl__trustStore__location=None, storage__ssl__trustStore__location=None
    )
    assert "storage.ssl.allowUnverified: true" in (await run_program(*SERVER, server)).one_error()
    with pytest.raises(TlsSettingsError, match="allowUnverified"):
        async with WaltzClient.connect(config):
            pass
    allowed = secured.client(tmp_path, **nothing, client__ssl__allowUnverified=True)
    async with WaltzClient.connect(allowed) as client:
        await secured.patient.append(client)


def _only_tls_1_2(settings: TlsSettings) -> ClientTls | None:
    context = client_context(settings)
    if context is not None:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE+AESGCM")
    return context


async def test_interop_peers_that_speak_tls_1_2_only(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Release 0.13.2 speaks nothing newer, neither as a client of the server nor as a server of the storage
    node."""
    monkeypatch.setattr(client_module, "client_context", _only_tls_1_2)
    await secured.patient.is_unharmed()
    cluster = secured.patient.cluster
    keys = yaml.safe_load(cluster.config_path("server-1").read_text())
    tls = TlsSettings(
        key_store=keys["storage.ssl.keyStore.location"], trust_store=keys["storage.ssl.trustStore.location"]
    )
    async with administrator(cluster) as admin:
        params = await read_store_params(admin.store, admin.root)
    connection = await StorageConnection.open(
        cluster.storage_endpoint("storage-1"),
        cluster_key=params.cluster_key,
        num_partitions=params.num_partitions,
        tls=_only_tls_1_2(tls),
    )
    connection.close()
