"""The real operator process, started as in its pod, on a real API server: it takes the Lease, sees every
cluster, and stays small.

ZooKeeper is not there, so every cluster stays at its first steps: watch, worker and session of each are there
all the same.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.installed import Administrator, make_namespace
from waltz_operator.kube import kinds

CLUSTERS = 20
NAMESPACE = "twenty"
LIMIT_MIB = 150
_SECONDS = 150.0


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_twenty_clusters_in_150_mib(
    plane: Plane, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(plane.control.kubeconfig(plane.token)))
    admin = Administrator(plane.control.configuration())
    try:
        await make_namespace(admin, NAMESPACE)
        for number in range(CLUSTERS):
            await admin.create(_cluster(NAMESPACE, f"ledger-{number}"))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "waltz_operator", "run", "--namespace", NAMESPACE,
            "--kubeconfig", str(kubeconfig), "--lease-namespace", "waltz-system",
            "--http-host", "127.0.0.1", "--http-port", "0",
            stderr=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with asyncio.timeout(_SECONDS):
                while not all(
                    body["metadata"].get("finalizers")
                    for body in await admin.list(kinds.WALTZ_CLUSTER, NAMESPACE)
                ):
                    assert process.returncode is None, "the operator has ended"
                    await asyncio.sleep(0.2)  # its first write for each is what is waited for
            peak = _peak_mib(process.pid)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()
    finally:
        await admin.close()
    assert peak < LIMIT_MIB
    record_property(f"peak memory of the operator with {CLUSTERS} clusters, MiB", peak)


def _peak_mib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) // 1024


def _cluster(namespace: str, name: str) -> dict[str, object]:
    return {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": stories.spec(
            replicas=3, zookeeper={"connectString": "127.0.0.1:9"}, tls={"mode": "Disabled"}
        ),
    }
