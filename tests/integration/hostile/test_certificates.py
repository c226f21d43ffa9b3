"""Mutual TLS with lists of names: who may connect to which port, and what the log says about those who may
not."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.authority import PASSWORD, Authority
from tests.integration.hostile.attacks_frames import running_session
from tests.integration.hostile.catalogue import BY_NAME
from tests.integration.hostile.stage import Stage, stage
from tests.integration.hostile.wires import Target
from tests.integration.processes import SERVER, STORAGE, Patient, run_program
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

HOST = "127.0.0.1"
PORTS = ("client", "storage", "admin")
ALLOWED = {
    "client": ("server.ssl.allowedPeers", "application"),
    "storage": ("storage.ssl.allowedPeers", "waltz-server"),
    "admin": ("storage.admin.ssl.allowedPeers", "operator"),
}
"""Which setting guards a port, and the certificate's name that it lets in."""


@dataclass
class Guarded:
    """A cluster in which each port takes one name only; `ours` has signed all certificates that should
    work."""

    stage: Stage
    ours: Authority
    theirs: Authority

    async def refused(self, kind: str, key_file: str | None) -> str:
        """Connections with this certificate are all cut; what the attacked process says about it."""
        damage = await self.stage.suffer(
            BY_NAME["wrong_certificate"], kind, calm_seconds=0.05, key_file=key_file
        )
        assert damage.named, damage.log
        assert "Traceback" not in damage.log, damage.log
        return damage.log


def mutual(prefix: str, authority: Authority, key_store: str) -> dict[str, object]:
    return {
        f"{prefix}.keyStore.location": key_store,
        f"{prefix}.keyStore.password": PASSWORD,
        f"{prefix}.trustStore.location": authority.trust_store,
        f"{prefix}.allowUnverified": None,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    keys = tmp_path_factory.mktemp("keys")
    ours, theirs = Authority(keys), Authority(keys, "stranger")
    overrides = {
        "storage": {
            **mutual("storage.ssl", ours, ours.pem("storage", HOST)),
            "storage.ssl.allowedPeers": ["waltz-server"],
            "storage.admin.ssl.allowedPeers": "backup, operator",
        },
        "server": {
            **mutual("server.ssl", ours, ours.pem("server", HOST)),
            **mutual("storage.ssl", ours, ours.pem("waltz-server")),
            "server.ssl.allowedPeers": ["application"],
        },
        "client": {
            **mutual("client.ssl", ours, ours.pem("application")),
            **mutual("ssl", ours, ours.pem("operator")),
        },
    }
    directory = tmp_path_factory.mktemp("cluster")
    settings = LocalSettings(directory, partitions=1, servers=1, tls=True, overrides=overrides)
    async with LocalCluster(settings) as cluster, stage(cluster) as made:
        yield Guarded(made, ours, theirs)
        await made.is_unharmed()


@pytest.mark.parametrize("kind", PORTS)
async def test_a_name_that_is_not_listed_is_cut_with_a_line_that_says_whose(
    guarded: Guarded, kind: str
) -> None:
    setting, _ = ALLOWED[kind]
    log = await guarded.refused(kind, guarded.ours.pem("mallory"))
    assert f"refused: its certificate (mallory) is not in {setting}" in log


@pytest.mark.parametrize("kind", PORTS)
async def test_names_are_those_of_one_port_only(guarded: Guarded, kind: str) -> None:
    for other in PORTS:
        if other != kind:
            await guarded.refused(kind, guarded.ours.pem(ALLOWED[other][1]))


async def test_alternative_names_count_too(guarded: Guarded) -> None:
    log = await guarded.refused("storage", guarded.ours.pem("node", "application", "10.1.2.3"))
    assert "(node, application, 10.1.2.3)" in log
    allowed = guarded.stage.target("storage", key_file=guarded.ours.pem("node-2", "waltz-server"))
    await running_session(allowed, 0)


async def test_safety_b1_a_client_certificate_and_the_cluster_key_raise_no_fence(guarded: Guarded) -> None:
    """An application's certificate is good, it knows the cluster key, and still it does not get to a
    session."""
    server = guarded.stage.target("storage", key_file=guarded.ours.pem("waltz-server"))
    before = await running_session(server, 0)
    application: Target = guarded.stage.target("storage", key_file=guarded.ours.pem("application"))
    with pytest.raises((OSError, EOFError)):
        await running_session(application, 0)
    assert await running_session(server, 0) == before


@pytest.mark.parametrize("kind", PORTS)
async def test_certificates_of_others_expired_ones_and_none(guarded: Guarded, kind: str) -> None:
    name = ALLOWED[kind][1]
    assert "certificate is not accepted" in await guarded.refused(kind, guarded.theirs.pem(name))
    assert "expired" in await guarded.refused(kind, guarded.ours.pem(name, expired=True))
    assert "did not return a certificate" in await guarded.refused(kind, None)


async def test_names_that_nobody_verifies_are_refused_at_the_start(guarded: Guarded, tmp_path: Path) -> None:
    patient = Patient(guarded.stage.cluster)
    server = patient.config(tmp_path, "server-1", server__ssl__trustStore__location=None)
    assert "allowedPeers needs server.ssl.trustStore" in (await run_program(*SERVER, server)).one_error()
    node = patient.config(tmp_path, "storage-1", storage__ssl__trustStore__location=None)
    assert "allowedPeers needs storage.ssl.trustStore" in (await run_program(*STORAGE, node)).one_error()
    empty = patient.config(tmp_path, "storage-1", storage__ssl__allowedPeers=[])
    assert "at least one certificate" in (await run_program(*STORAGE, empty)).one_error()
