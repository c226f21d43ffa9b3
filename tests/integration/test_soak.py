"""`make soak` in short: the rounds about lost and restored directories. Kills, freezes and restarts are in
test_failover, adding and removing replicas in test_recovery_examples."""

from pathlib import Path

import pytest

from tests.integration.journals import Journals, overrides
from tests.integration.replicas import compare_replicas
from tests.integration.soak import run_round
from tests.integration.soak_rounds import Plan, rounds
from tests.integration.workload import Workload, check_log
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

CHOSEN = ("deleted", "older copy")


async def test_deleted_directory_and_older_copy_under_load(tmp_path: Path) -> None:
    async with LocalCluster(
        LocalSettings(tmp_path, partitions=2, overrides=overrides(Journals.SOME))
    ) as cluster:
        workload = Workload(cluster.client_config, writers=1)
        chosen = [
            each for each in rounds(cluster, Plan(kills=0)) if any(word in each.name for word in CHOSEN)
        ]
        assert len(chosen) == len(CHOSEN)
        for each in chosen:
            before = len(workload.history.acknowledged)
            await run_round(cluster, workload, each)
            assert len(workload.history.acknowledged) > before, each.name
            verdict = await check_log(cluster.client_config, workload.history)
            assert verdict.passed, f"{each.name}: {verdict}"
        assert await compare_replicas(cluster) == verdict.transactions
