"""The client in Go that was written from docs/protocol.md, on a real cluster, next to the one in Python."""

import asyncio
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from waltz_client import LockConflictError, LockId, WaltzClient
from waltz_tools.local import LocalCluster, LocalSettings

EXAMPLE = Path(__file__).parents[2] / "examples" / "go-client"
GO = shutil.which("go")
COUNT = 1_500
"""More than the credit that the client grants at first."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(GO is None, reason="no Go on this machine (Debian: apt-get install golang-go)"),
]


ENVIRONMENT = {**os.environ, "GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local"}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    settings = LocalSettings(tmp_path / "cluster", storage_nodes=3, servers=2, partitions=2, tls=False)
    async with LocalCluster(settings) as cluster:
        yield cluster


@pytest.mark.parametrize("arguments", [["vet", "./..."], ["test", "./..."]], ids=" ".join)
def test_it_needs_nothing_but_the_standard_library_and_its_own_tests_pass(arguments: list[str]) -> None:
    assert "require" not in (EXAMPLE / "go.mod").read_text()
    done = subprocess.run(
        [GO or "go", *arguments], cwd=EXAMPLE, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_both_clients_see_the_same_log_and_the_same_locks(cluster: LocalCluster) -> None:
    zookeeper = yaml.safe_load(cluster.client_config.read_text())["zookeeper.connectString"]
    arguments = ["-zookeeper", zookeeper, "-partition", "1", "-count", str(COUNT)]
    async with WaltzClient.connect(cluster.client_config) as client:
        before = (await client.append(partition=1, data=b"the first", deadline_seconds=60)).transaction_id
        running = await asyncio.create_subprocess_exec(
            GO or "go", "run", ".", *arguments, cwd=EXAMPLE, env=ENVIRONMENT,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        printed = (await running.communicate())[0].decode()
        assert running.returncode == 0, printed
        last = await client.high_water_mark(1)
        seen = [t async for t in client.feed(1, after=before, until=last)]

        deposit, withdraw = before + 1, before + 2
        began = re.match(r"client (\d+), generation (\d+), the log ends at (\d+)\n", printed)
        assert began is not None, printed
        go_id = int(began[1])
        assert go_id != client.client_id
        assert int(began[3]) == before
        assert f"withdraw 30: conflict with transaction {deposit} of client {go_id}\n" in printed
        assert f"withdraw 30: committed as {withdraw}\n" in printed
        assert f"read {deposit}: deposit 100\nread {withdraw}: withdraw 30\n" in printed
        payloads = [b"deposit 100", b"withdraw 30", *(b"number %d" % n for n in range(COUNT))]
        assert [t.data for t in seen] == payloads
        assert [t.header for t in seen] == [1, 1] + [2] * COUNT
        assert {t.req_id.client_id for t in seen} == {go_id}
        assert printed.endswith(f"read {len(seen)} transactions, {sum(map(len, payloads))} bytes\n")

        with pytest.raises(LockConflictError):
            await client.append(partition=1, data=b"", write_locks=[LockId("account", 7)], as_of=before)
        done = await client.append(partition=1, data=b"", write_locks=[LockId("account", 7)], as_of=last)
        assert done.transaction_id == last + 1
        batches = [batch async for batch in client.read_range(1, deposit, last)]
        checksums = [checksum & 0xFFFFFFFF for batch in batches for checksum in batch.checksums]
        assert checksums == [zlib.crc32(payload) for payload in payloads]
