"""`python -m tests.integration.soak`: disturb a cluster of real processes under load, round by round.

After every round: the replicas are caught up, the whole log is read back, and what was acknowledged is
compared with it. Exit code 0 only if nothing was lost, doubled or resurrected in any round and all replicas
are equal in the end.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.integration import journals
from tests.integration.replicas import administrator, compare_replicas
from tests.integration.soak_rounds import Plan, Round, rounds
from tests.integration.workload import History, Verdict, Workload, check_log
from waltz_tools.local import LocalCluster, LocalSettings

SETTLE_SECONDS = 1.0


def report(
    number: int, count: int, what: str, acknowledged: int, verdict: Verdict, history: History, seconds: float
) -> None:
    print(
        f"[{number:2}/{count}] {what:45} acknowledged {acknowledged:7,}  lost {len(verdict.lost)}"
        f"  doubled {len(verdict.doubled)}  failed-but-present {len(verdict.resurrected)}  gaps {len(verdict.gaps)}"
        f"  unknown {len(history.unknown):3}  longest pause of a partition {history.longest_gap_seconds:6.2f} s  caught up after {seconds:5.1f} s",
        flush=True,
    )


async def run_round(cluster: LocalCluster, workload: Workload, each: Round) -> float:
    """One disturbance under load; the seconds until everybody was caught up after it."""
    async with workload.running() as history:
        await asyncio.sleep(SETTLE_SECONDS)
        history.start_round()
        # A session of its own per round: ZooKeeper itself is among the victims.
        async with administrator(cluster) as admin:
            await each.run(cluster, admin)
        async with administrator(cluster) as admin:
            seconds = await admin.wait_complete()
        await asyncio.sleep(SETTLE_SECONDS)
        history.end_round()
    return seconds


async def soak(settings: LocalSettings, plan: Plan) -> bool:
    """All rounds; True when all of them passed."""
    passed = True
    async with LocalCluster(settings) as cluster:
        workload = Workload(cluster.client_config, writers=2)
        planned = rounds(cluster, plan)
        for number, each in enumerate(planned, start=1):
            before = len(workload.history.acknowledged)
            seconds = await run_round(cluster, workload, each)
            verdict = await check_log(cluster.client_config, workload.history)
            acknowledged = len(workload.history.acknowledged) - before
            report(number, len(planned), each.name, acknowledged, verdict, workload.history, seconds)
            passed = passed and verdict.passed and acknowledged > 0
        records = await compare_replicas(cluster)
        print(f"replicas equal record by record: {records:,} records each")
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="rounds of SIGKILL over every role in turn")
    parser.add_argument(
        "--pause-seconds", type=float, default=60.0, help="how long one storage node is stopped"
    )
    parser.add_argument("--no-tls", action="store_true")
    journals.add_option(parser)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)  # lost connections are what this is about
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="waltz-soak-") as directory:
        plan = Plan(arguments.kills, arguments.pause_seconds)
        settings = LocalSettings(
            Path(directory),
            partitions=4,
            tls=not arguments.no_tls,
            overrides=journals.overrides(arguments.journal),
        )
        passed = asyncio.run(soak(settings, plan))
    print(f"{'PASS' if passed else 'FAIL'} after {time.monotonic() - started:.0f} s")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
