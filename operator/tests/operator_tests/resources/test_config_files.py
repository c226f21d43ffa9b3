"""The configuration files are what the services read: they are read here with the services' own settings
classes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from operator_tests.resources.clusters import VARIANTS, cluster, objects
from waltz_cluster.config.files import load_file
from waltz_operator.api.journal import JournalMode, NodeJournal
from waltz_operator.api.security import Tls
from waltz_protocol.aio.tls import client_context
from waltz_protocol.errors import TlsSettingsError
from waltz_server.settings import ServerSettings
from waltz_storage.settings import StorageSettings


def files(variant: str, folder: Path) -> tuple[StorageSettings, ServerSettings]:
    found = objects(cluster(VARIANTS[variant]))
    for role in ("storage", "server"):
        (folder / role).write_text(found["ConfigMap", f"ledger-{role}"]["data"][f"waltz-{role}.yml"])
    return StorageSettings.from_file(folder / "storage"), ServerSettings.from_file(folder / "server")


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_services_take_them(variant: str, tmp_path: Path) -> None:
    storage, server = files(variant, tmp_path)
    spec = cluster(VARIANTS[variant]).spec
    assert (storage.port, storage.admin_port, storage.http_port) == (55280, 55281, 55282)
    assert (server.port, server.jetty_port) == (55180, 55181)
    assert storage.directory == "/var/lib/waltz"
    assert storage.zookeeper_connect_string == server.zookeeper_connect_string
    assert storage.cluster_root == server.cluster_root == (spec.zookeeper.root or "/waltz/demo/ledger")
    assert storage.zookeeper_session_timeout_ms == 10_000
    inbound, outbound = server.client_facing_tls(), server.storage_facing_tls()
    own = storage.tls_settings("storage.ssl")
    if spec.tls.mode.value == "Disabled":
        assert not any(tls.enabled for tls in (inbound, outbound, own))
        return
    for tls in (inbound, outbound, own):
        assert tls.enabled
        assert not tls.allow_unverified
        assert tls.key_store == "/etc/waltz/tls"
    assert own.trust_store is not None, "storage nodes always ask for a certificate"
    assert outbound.trust_store is not None, "servers always verify storage nodes"
    assert (inbound.trust_store is not None) == (variant != "open to clients")


def test_the_clusters_own_certificates_may_always_connect(tmp_path: Path) -> None:
    storage, server = files("plain", tmp_path)
    assert storage.allowed_peers == ("ledger-server.demo", "ledger-operator.demo")
    assert storage.admin_allowed_peers == ("ledger-operator.demo",)
    assert server.allowed_peers is None
    storage, server = files("named peers", tmp_path)
    assert storage.allowed_peers == ("ledger-server.demo", "ledger-operator.demo", "tool")
    assert storage.admin_allowed_peers == ("ledger-operator.demo", "tool")
    # servers watch each other, with the certificates of their role
    assert server.allowed_peers == ("ledger-server.demo", "ledger-operator.demo", "app")
    # with certificates of one's own nobody but their owner knows their names
    storage, server = files("own certificates", tmp_path)
    assert (storage.allowed_peers, storage.admin_allowed_peers, server.allowed_peers) == (None, None, None)


def test_servers_that_ask_clients_for_no_certificate_cannot_watch_each_other(tmp_path: Path) -> None:
    """A server verifies another one by the trust store of its own port, and that is what asks clients for a
    certificate: so a crash is noticed later, and the field has to say it."""
    _, server = files("open to clients", tmp_path)
    with pytest.raises(TlsSettingsError, match="trustStore"):
        client_context(server.client_facing_tls())
    description = Tls.model_fields["client_authentication"].description
    assert "watch each other" in str(description)


def test_addresses_that_clients_are_told(tmp_path: Path) -> None:
    def told(variant: str) -> tuple[str | None, int | None]:
        _, server = files(variant, tmp_path)
        return server.advertised_host, server.advertised_port

    assert told("plain") == ("{dashed-address}.ledger-server.demo.svc", None)
    assert told("host port") == ("{dashed-address}.waltz.example.com", 31180)
    assert told("pod address") == ("{address}", None)


def test_credentials_come_from_a_file(tmp_path: Path) -> None:
    storage, server = files("own zookeeper", tmp_path)
    for settings in (storage, server):
        assert settings.zookeeper_auth is None
        assert settings.zookeeper_auth_file == "/etc/waltz/zookeeper-auth/auth"
        assert settings.zookeeper_acl == "creator-world-read"
    pod = objects(cluster(VARIANTS["own zookeeper"]))["Deployment", "ledger-server"]["spec"]["template"][
        "spec"
    ]
    volume = next(volume for volume in pod["volumes"] if volume["name"] == "zookeeper-auth")
    assert volume["secret"]["items"] == [{"key": "login", "path": "auth"}]


def test_a_person_has_the_last_word(tmp_path: Path) -> None:
    storage, server = files("tuned", tmp_path)
    assert storage.disk_threads == 8
    assert server.log_level == "WARNING"
    path = tmp_path / "storage"
    assert load_file(path)["storage.disk.threads"] == 8


@pytest.mark.parametrize(
    ("journal", "keys"),
    [
        (None, {}),
        ({"mode": "Disabled", "size": "1Gi"}, {"enabled": False}),
        ({}, {"enabled": True, "files": 4, "fileBytes": 32 << 20}),
        (
            {"volume": {"size": "1Gi"}},
            {
                "enabled": True,
                "files": 4,
                "fileBytes": 32 << 20,
                "directory": "/var/lib/waltz-journal/journal",
            },
        ),
        (
            {"mode": "Disabled", "volume": {"size": "1Gi"}},
            {"enabled": False, "directory": "/var/lib/waltz-journal/journal"},
        ),
        ({"size": "1G"}, {"enabled": True, "files": 4, "fileBytes": 250_000_000}),
    ],
)
def test_the_journal_is_in_the_file_of_the_storage_nodes(
    journal: dict[str, str] | None, keys: dict[str, object]
) -> None:
    made = cluster({} if journal is None else {"storage": {"journal": journal}})
    found = yaml.safe_load(objects(made)["ConfigMap", "ledger-storage"]["data"]["waltz-storage.yml"])
    prefix = "storage.journal."
    assert {
        name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)
    } == keys
    settings = StorageSettings.from_mapping(found, source="the file")
    assert (settings.journal() is not None) == bool(keys.get("enabled"))


def test_a_journal_that_fits_leaves_space_for_the_reserve() -> None:
    """Three quarters of a volume are not the journal's; the reserve is 2 % of it, and a quarter more."""
    journal = NodeJournal(size="1Gi")
    assert journal.fits("4Gi")
    assert not journal.fits("4095Mi")
    assert NodeJournal(mode=JournalMode.DISABLED, size="1Gi").fits("1Gi")
