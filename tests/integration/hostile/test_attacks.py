"""Every attack of the catalogue on real processes, with TLS and without: what holds is the same for all of
them.

The attacked process takes at most 64 MiB more memory, keeps serving, names the attacker in its log and logs
no stack trace; the bystander's appends continue, and afterwards the log holds exactly what was acknowledged,
on every replica. How much slower the bystander gets is a figure of the benchmark:
`python -m bench --only hostile`.
"""

import asyncio
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio

from tests.integration.hostile.catalogue import ALL, BY_NAME, Attack
from tests.integration.hostile.stage import MIB, Stage, stage
from tests.integration.replicas import compare_replicas
from waltz_tools.local import LocalCluster, LocalSettings
from waltz_tools.local.http import get_json

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

MAX_MEMORY_MIB = 64
FILLED_BYTES = 8 * MIB
_SHORT = 0.4
"""Of the time that an attack continues in the benchmark."""


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[True, pytest.param(False, marks=pytest.mark.long)],
    ids=["tls", "plain"],
)
async def attacked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    directory = tmp_path_factory.mktemp("cluster")
    settings = LocalSettings(directory, partitions=2, servers=1, tls=request.param)
    async with LocalCluster(settings) as cluster, stage(cluster, FILLED_BYTES) as made:
        yield made
        await made.is_unharmed()
        await compare_replicas(cluster)


def _kinds(attack: Attack, tls: bool) -> list[str]:
    """The ports to try it on in this cluster."""
    if attack.needs_tls not in (None, tls):
        return []
    kinds = ["server-http" if tls else "http"] if attack.kinds == ("http",) else list(attack.kinds)
    if attack.heavy and len(kinds) > 1:
        return kinds[:1] if tls or attack.needs_tls is not None else kinds[1:2]
    return kinds


@pytest.mark.parametrize("attack", ALL, ids=lambda attack: attack.name)
async def test_attack(attacked: Stage, attack: Attack) -> None:
    kinds = _kinds(attack, bool(attacked.cluster.state.tls))
    if not kinds:
        pytest.skip("not for this cluster")
    for kind in kinds:
        damage = await attacked.suffer(attack, kind, calm_seconds=0.05, stretch=_SHORT)
        print(f"{attack.name} on {kind}: {damage.memory_mib:.0f} MiB, {damage.attacked_appends} appends")
        assert "Traceback" not in damage.log, damage.log
        assert damage.memory_mib <= MAX_MEMORY_MIB
        assert damage.attacked_appends > 0
        assert damage.named or not attack.named, damage.log
        assert attacked.cluster.unexpected_ends() == []


async def test_no_file_descriptors_left(attacked: Stage) -> None:
    """Connections use up every descriptor of a storage node: it says so, calls nothing damaged, and
    recovers."""
    process = psutil.Process(attacked.cluster.pid("storage-1"))
    soft, hard = process.rlimit(psutil.RLIMIT_NOFILE)
    process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + 10, hard))
    try:
        damage = await attacked.suffer(
            BY_NAME["silent"], "storage", calm_seconds=0.05, stretch=_SHORT, at_least_seconds=0.5
        )
    finally:
        process.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
    assert damage.attacked_appends > 0
    assert "Traceback" not in damage.log, damage.log
    async with asyncio.timeout(30):
        while (await get_json(attacked.cluster.port("storage-1", "http"), "/health"))[0] != 200:
            await asyncio.sleep(0.05)
