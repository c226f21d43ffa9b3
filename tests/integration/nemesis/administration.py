"""An administrator at work during the faults: asks how the cluster is, again and again.

It may get no answer, with an error of one line; anything else, or no end at all, is a finding.
"""

import asyncio
from collections import Counter

from tests.integration.replicas import administrator
from waltz_admin.errors import AdminError
from waltz_admin.verify import verify_cluster
from waltz_cluster.errors import ClusterError
from waltz_protocol.errors import WaltzProtocolError
from waltz_tools.local import LocalCluster

_PAUSE_SECONDS = 2.0
_ANSWER_SECONDS = 5.0
_END_SECONDS = 60.0


class Administration:
    """`counts` has how often the cluster passed, failed, or did not answer."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self._cluster = cluster

    async def run(self) -> None:
        """Forever, with a new session of ZooKeeper each time."""
        while True:
            try:
                async with asyncio.timeout(_END_SECONDS), administrator(self._cluster) as admin:
                    report = await verify_cluster(
                        admin.store, admin.root, tls=admin.tls, timeout_seconds=_ANSWER_SECONDS
                    )
                self.counts["passed" if report.passed else "not all well"] += 1
            except (AdminError, ClusterError, WaltzProtocolError):
                self.counts["no answer"] += 1
            except TimeoutError:
                self.findings.append(f"verify did not end within {_END_SECONDS:.0f} s")
            except Exception as error:
                self.findings.append(f"verify ended with {error!r}")
            await asyncio.sleep(_PAUSE_SECONDS)
