"""The Spark source over strict mutual TLS: keys come by path or travel with the application; a stranger is
refused in one line."""

import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from tests.integration.authority import PASSWORD, Authority
from tests.integration.processes import run_program
from waltz_client import WaltzClient
from waltz_tools.local import LocalCluster, LocalSettings
from waltz_tools.local.java import find_java

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

HOST = "127.0.0.1"
PROGRAM = Path(__file__).with_name("spark_reader.py")
PROGRAM_SECONDS = 270.0
"""Starting Java and four Python workers takes a few seconds, and minutes on a machine that is very busy."""
PAYLOADS = ["one", "two", "three"]


@dataclass
class Secured:
    """A cluster that knows only clients of `ours`; three transactions in partition 0."""

    cluster: LocalCluster
    ours: Authority
    theirs: Authority

    async def read(self, *files: str, **tls: str) -> object:
        """What an application with these TLS options prints."""
        given = yaml.safe_load(self.cluster.client_config.read_text())
        options = {k: str(v).lower() for k, v in given.items() if k.startswith(("zookeeper.", "cluster."))}
        options["zookeeper.connectString"] = given["zookeeper.connectString"]
        options |= {"readTimeoutMs": "8000", "zookeeper.sessionTimeout": "10000"}
        options |= {f"client.ssl.{key.replace('__', '.')}": value for key, value in tls.items()}
        ended = await run_program(
            sys.executable, str(PROGRAM), json.dumps(options), *files, seconds=PROGRAM_SECONDS
        )
        assert ended.code == 0, ended.err
        return json.loads(ended.out.splitlines()[-1])


def _mutual(prefix: str, authority: Authority, key_store: str) -> dict[str, object]:
    return {
        f"{prefix}.keyStore.location": key_store,
        f"{prefix}.trustStore.location": authority.trust_store,
        f"{prefix}.allowUnverified": None,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    keys = tmp_path_factory.mktemp("keys")
    ours, theirs = Authority(keys), Authority(keys, "stranger")
    person = ours.pem("client")
    overrides = {
        "storage": _mutual("storage.ssl", ours, ours.pem("storage", HOST)),
        "server": _mutual("server.ssl", ours, ours.pem("server", HOST)),
        "client": _mutual("client.ssl", ours, person) | _mutual("ssl", ours, person),
    }
    settings = LocalSettings(
        tmp_path_factory.mktemp("cluster"),
        storage_nodes=1,
        servers=1,
        partitions=1,
        tls=True,
        overrides=overrides,
    )
    os.environ.setdefault("JAVA_HOME", str(Path(find_java()).resolve().parent.parent))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    async with LocalCluster(settings) as cluster:
        async with WaltzClient.connect(cluster.client_config) as client:
            for payload in PAYLOADS:
                await client.append(partition=0, data=payload.encode())
        yield Secured(cluster, ours, theirs)


async def test_keys_travel_with_the_application_or_come_by_path(secured: Secured) -> None:
    found = await secured.read(
        secured.ours.trust_store,
        keyStore__location=secured.ours.pkcs12("client", HOST),
        keyStore__type="PKCS12",
        keyStore__password=PASSWORD,
        trustStore__location=f"sparkfiles:{Path(secured.ours.trust_store).name}",
    )
    assert found == [[0, number, payload] for number, payload in enumerate(PAYLOADS)]


async def test_servers_of_a_stranger_are_not_read(secured: Secured) -> None:
    found = await secured.read(
        keyStore__location=secured.ours.pem("client"), trustStore__location=secured.theirs.trust_store
    )
    assert isinstance(found, dict)
    assert "partition 0: no answer for its high-water mark in time" in found["error"][0]
    assert "certificate" in found["error"][0]
    missing = await secured.read(trustStore__location="sparkfiles:nowhere.pem")
    assert isinstance(missing, dict)
    assert "client.ssl.trustStore.location" in missing["error"][0]
