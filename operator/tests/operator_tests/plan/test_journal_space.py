"""A journal is switched on only where the volumes have free space for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan import cluster
from operator_tests.plan.cluster import answer, facts, replica
from waltz_operator.model.actions import ApplyObject, DeletePod
from waltz_operator.model.facts import Facts
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import NodeView, ObjectKey, ObjectView, Unknown
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide

SIZE = 128 << 20
KEY = ObjectKey("ConfigMap", "c-storage")
OFF, ON = "storage.port: 1\n", "storage.journal.enabled: true\nstorage.port: 1\n"


def seen(free: int | None, live: str | None = OFF, *, needed: int = SIZE, silent: bool = False) -> Facts:
    """Node 1 has so much free space; `live`: the configuration that the nodes have."""
    kube = cluster.kube()
    body = {} if live is None else {KEY: ObjectView("c", "", "old", {"data": {"waltz-storage.yml": live}})}
    says: NodeView | Unknown = Unknown("no route")
    if not silent:
        says = replace(answer(replica()), disk_free_bytes=free, disk_total_bytes=1 << 30)
    found = facts(replace(kube, objects={**kube.objects, **body}), {1: says})
    return replace(found, desired=replace(found.desired, journal_bytes=needed))


def decided(found: Facts) -> Decision:
    """Another configuration is wanted, and pods that have it."""
    wanted = Rendered(KEY, {"data": {"waltz-storage.yml": ON}}, "new")
    return decide(found, (wanted, *cluster.rendered(template="t2")))


def applied(decision: Decision) -> set[str]:
    return {one.key.kind for one in decision.actions if isinstance(one, ApplyObject)}


def test_without_space_neither_configuration_nor_pods_change() -> None:
    decision = decided(seen(SIZE))
    assert not applied(decision) & {"ConfigMap", "StatefulSet"}
    assert not any(isinstance(one, DeletePod) for one in decision.actions)
    (line,) = decision.unable
    assert f"storage node 1-0 has {SIZE} bytes free" in line
    assert "storage.journal.volume" in line


@pytest.mark.parametrize(
    "found",
    [
        seen(2 * SIZE),
        seen(None),
        seen(SIZE, silent=True),
        seen(SIZE, needed=0),
        seen(SIZE, ON),
        seen(SIZE, None),
    ],
)
def test_it_is_switched_on_otherwise(found: Facts) -> None:
    """Also where nothing is known of the space, and where the journal is there already and fills it."""
    decision = decided(found)
    assert not decision.unable
    assert {"ConfigMap", "StatefulSet"} <= applied(decision)
