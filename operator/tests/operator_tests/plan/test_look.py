"""What a look at Kubernetes takes for the cluster's own volume claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from operator_tests.kube.unused import UnusedKube
from operator_tests.plan.cluster import NODES, NOW, facts, kube, rendered
from operator_tests.resources.clusters import PLAIN, UID
from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.errors import ConnectError
from waltz_cluster.store import ZooKeeperStore
from waltz_operator.api.metadata import API_VERSION
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeNotFoundError
from waltz_operator.kube.kinds import Kind
from waltz_operator.model.actions import DeletePod
from waltz_operator.model.snapshot import KubeView
from waltz_operator.model.times import timestamp
from waltz_operator.plan.cluster import decide
from waltz_operator.run.observe import Observer
from waltz_operator.run.read_kubernetes import claim as claim_view
from waltz_operator.run.read_kubernetes import kube_view, pod
from waltz_operator.run.tls_files import TlsFiles
from waltz_operator.run.zookeeper_sessions import Ensembles

CLUSTER = {
    "apiVersion": API_VERSION,
    "kind": "WaltzCluster",
    "metadata": {"name": "ledger", "namespace": "demo", "uid": UID},
    "spec": {**PLAIN, "tls": {"mode": "Disabled"}},
}


def claim(
    name: str, component: str, instance: str = "ledger", app: str = "waltz", manager: str = ""
) -> Object:
    labels = {"name": app, "instance": instance, "component": component, "managed-by": manager}
    return {
        "metadata": {
            "name": name,
            "labels": {f"app.kubernetes.io/{key}": value for key, value in labels.items() if value},
        }
    }


CLAIMS = [
    claim("data-ledger-storage-1-0-0", "storage", manager="waltz-operator"),
    claim("data-ledger-zookeeper-0", "zookeeper"),
    claim("data-other-zookeeper-0", "zookeeper", instance="other"),
    claim("data-ledger-postgres-0", "zookeeper", app="postgres"),
    claim("data-ledger-web-0", "web"),
]


class Claims(UnusedKube):
    """A cluster, the claims of the namespace, and nothing else."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        if kind is not kinds.WALTZ_CLUSTER:
            raise KubeNotFoundError(f"no {kind.kind} {name}", status=404)
        return CLUSTER

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        wanted = (labels or {}).items()
        found = CLAIMS if kind is kinds.PVC else []
        return [one for one in found if wanted <= one["metadata"]["labels"].items()]


async def _no_session(_: ZooKeeperSettings) -> ZooKeeperStore:
    raise ConnectError("nobody listens")


async def test_claims_made_by_the_managed_zookeepers_stateful_set_are_seen_and_nobody_elses() -> None:
    files, ensembles = TlsFiles(), Ensembles(_no_session)
    try:
        look = await Observer(Claims(), ensembles, files, lambda: 0.0).observe("demo", "ledger")
    finally:
        files.close()
        await ensembles.close()
    kube = look.snapshot.kube
    assert isinstance(kube, KubeView)
    assert sorted(kube.pvcs) == ["data-ledger-storage-1-0-0", "data-ledger-zookeeper-0"]
    assert kube.pvcs["data-ledger-zookeeper-0"].component == "zookeeper"


def crashed(code: int, waiting: str = "CrashLoopBackOff", component: str = "storage") -> Object:
    state = {"waiting": {"reason": waiting}} if waiting else {"running": {}}
    last = {"terminated": {"exitCode": code}}
    container = {"name": component, "state": state, "lastState": last}
    labels = {"app.kubernetes.io/component": component}
    return {"metadata": {"labels": labels}, "status": {"containerStatuses": [container]}}


def test_a_lost_journal_is_known_by_what_the_process_ended_with() -> None:
    assert pod(crashed(4)).journal_lost
    for other in (crashed(1), crashed(137), crashed(4, ""), crashed(4, component="server"), {}):
        assert not pod(other).journal_lost


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
@pytest.mark.parametrize(("component", "counts"), [("server", False), ("console", False), ("storage", True)])
def test_the_record_of_a_pod_whose_place_another_takes_is_no_pod(
    component: str, counts: bool, phase: str
) -> None:
    """It stays until somebody collects it: the next upgrade was refused for what it had run, and an authority
    was not renewed for what it had trusted."""
    labels = {"app.kubernetes.io/component": component}
    runs, over = (
        {"metadata": {"name": name, "uid": name, "labels": labels}, "status": {"phase": status}}
        for name, status in (("runs", "Running"), ("over", phase))
    )
    assert ("over" in kube_view({"Pod": [runs, over]}, {}, "ledger-server").pods) is counts
    assert "runs" in kube_view({"Pod": [runs, over]}, {}, "ledger-server").pods


@pytest.mark.parametrize(
    ("age", "status", "restarts"), [(299, "True", 0), (300, "True", 1), (300, "False", 0)]
)
def test_a_volume_that_may_grow_under_its_pod_is_given_time_to(age: int, status: str, restarts: int) -> None:
    """Kubernetes shows the condition of every volume that grows, until the kubelet has grown its file
    system."""
    condition = {
        "type": "FileSystemResizePending",
        "status": status,
        "lastTransitionTime": timestamp(NOW - age),
    }
    found = claim_view({"metadata": {"uid": "v"}, "status": {"conditions": [condition]}}, {})
    view = kube()
    view = replace(view, pvcs={**view.pvcs, **{f"data-s{node}-0": found for node in NODES}})
    decision = decide(facts(view), rendered())
    assert sum(isinstance(one, DeletePod) for one in decision.actions) == restarts
