"""Which pods have to be restarted still, in the order in which they are: the managed ZooKeeper, storage
nodes, servers; on the way to an earlier release servers before storage nodes (ADR 20). Pure.

The order within a part, and the proof before each restart, are those of `zookeeper_restarts`, `restarts` and
of the servers' Deployment.
"""

from __future__ import annotations

from collections.abc import Sequence

from waltz_operator.model.facts import Facts
from waltz_operator.model.outstanding import Outstanding
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import KubeView, ObjectKey, PodView
from waltz_operator.plan.restarts import due
from waltz_operator.plan.safety_gates import Allowed, may_restart, may_restart_zookeeper
from waltz_operator.plan.zookeeper_restarts import due_servers


def outstanding(facts: Facts, kube: KubeView, objects: Sequence[Rendered]) -> list[Outstanding]:
    """All of them. What comes later waits for what comes earlier, which `waits` says where nothing else is
    in the way."""
    key = ObjectKey("StatefulSet", facts.desired.zookeeper_set)
    wanted = next((one.template_hash for one in objects if one.key == key), "")
    zookeeper = []
    for name, pod, _, text in due_servers(facts, kube, wanted):
        answer = may_restart_zookeeper(facts, name)
        blocked = "" if isinstance(answer, Allowed) else answer.blocked.text
        zookeeper.append(Outstanding(name, "zookeeper", text, _window(facts, pod) or blocked))
    storage = []
    for one in due(facts, kube, objects):
        gate = may_restart(facts, one.node)
        blocked = "" if isinstance(gate, Allowed) else gate.blocked.text
        storage.append(Outstanding(one.node.pod, "storage", one.text, _window(facts, one.pod) or blocked))
    servers = [
        Outstanding(name, "server", "its pod template has changed", _window(facts, pod))
        for name, pod in _servers(facts, kube, objects)
    ]
    parts = [zookeeper, servers, storage] if facts.version.down else [zookeeper, storage, servers]
    found: list[Outstanding] = []
    for item in (item for part in parts for item in part):
        first = f"{found[-1].pod} comes first" if found else ""
        found.append(item._replace(waits=item.waits or first))
    return found


def _window(facts: Facts, pod: PodView) -> str:
    return "" if pod.stuck else facts.restarts_wait


def _servers(facts: Facts, kube: KubeView, objects: Sequence[Rendered]) -> list[tuple[str, PodView]]:
    wanted = next((one.template_hash for one in objects if one.key == facts.desired.servers_key), "")
    return [
        (name, pod)
        for name, pod in sorted(kube.pods.items())
        if pod.component == "server" and wanted and pod.template_hash != wanted and not pod.deleting
    ]
