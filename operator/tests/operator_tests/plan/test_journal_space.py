"""A journal is switched on only where there is a place for it: free space, or the claims of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan import cluster
from operator_tests.plan.cluster import NODES, answer, facts, identity, replica
from waltz_operator.api.journal import DIRECTORY
from waltz_operator.model.actions import ApplyObject, DeletePod
from waltz_operator.model.facts import Facts
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import (
    KubeView,
    NodeView,
    ObjectKey,
    ObjectView,
    PVCView,
    Rejection,
    Unknown,
)
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


def test_a_volume_that_was_made_larger_gets_its_restart() -> None:
    """`storage.size` is what the report tells people to raise; with some drivers the file system grows when
    the pod starts again, and until then the free space is what it was."""
    found = seen(SIZE)
    assert isinstance(found.kube, KubeView)
    claim = identity(1).pvc
    grown = {**found.kube.pvcs, claim: replace(found.kube.pvcs[claim], resize_pending_since=0.0)}
    decision = decided(replace(found, kube=replace(found.kube, pvcs=grown)))
    assert decision.unable
    assert not applied(decision) & {"ConfigMap", "StatefulSet"}
    (restart,) = [one for one in decision.actions if isinstance(one, DeletePod)]
    assert (restart.name, "grows" in restart.reason) == (identity(1).pod, True)


ELSEWHERE = f"storage.journal.directory: {DIRECTORY}\n"


def moving(
    claims: int, live: str = ON, wanted_size: int = SIZE, capacity: int | None = None
) -> tuple[Facts, tuple[Rendered, ...]]:
    """The journal is to move to volumes of its own; so many of their claims are there."""
    found = seen(None, live, needed=0)
    assert isinstance(found.kube, KubeView)
    names = [f"journal-{identity(node).pod}" for node in NODES]
    there = {name: PVCView("w", SIZE, capacity) for name in names[:claims]}
    wanted = tuple(one._replace(journal_pvc=f"journal-{one.pod}") for one in found.desired.nodes)
    desired = replace(
        found.desired,
        nodes=wanted,
        by_connect={one.connect_string: one for one in wanted},
        own_journal_bytes=wanted_size,
    )
    kube = replace(found.kube, pvcs={**found.kube.pvcs, **there})
    file = {"waltz-storage.yml": f"{ELSEWHERE}storage.journal.fileBytes: {wanted_size // 4}\n{ON}"}
    objects = [Rendered(KEY, {"data": file}, "new")]
    objects += [Rendered(ObjectKey("PersistentVolumeClaim", one), {}, "claim") for one in names]
    return replace(found, kube=kube, desired=desired), (*objects, *cluster.rendered(template="t2"))


@pytest.mark.parametrize("claims", [0, 1, len(NODES) - 1])
@pytest.mark.parametrize("rejected", [False, True])
def test_claims_come_before_the_file_and_the_pods_that_use_them(claims: int, rejected: bool) -> None:
    """A pod that mounts no such volume, and whose container starts again, cannot make its journal there: with
    a quota of claims that is used up no node would come back."""
    found, objects = moving(claims)
    last = ObjectKey("PersistentVolumeClaim", f"journal-{identity(NODES[-1]).pod}")
    decision = decide(found, objects, {last: Rejection("quota", False)} if rejected else {})
    assert not applied(decision) & {"ConfigMap", "StatefulSet"}
    assert not any(isinstance(one, DeletePod) for one in decision.actions)
    tried = {one.key for one in decision.actions if isinstance(one, ApplyObject)}
    assert (last in tried) is not rejected


SAME = f"{ELSEWHERE}storage.journal.fileBytes: {SIZE // 4}\n{ON}"


@pytest.mark.parametrize(
    "found",
    [
        moving(len(NODES)),
        moving(len(NODES), capacity=2 * SIZE),
        moving(0, SAME),
        moving(len(NODES), SAME, capacity=SIZE // 2),
        moving(len(NODES), SAME, 4 * SIZE, 8 * SIZE),
    ],
)
def test_with_its_claims_the_journal_moves(found: tuple[Facts, tuple[Rendered, ...]]) -> None:
    """A claim that is missing later is made anew, and holds back nothing; nor does what is as it was."""
    decision = decide(*found)
    assert not decision.unable
    assert {"ConfigMap", "StatefulSet"} <= applied(decision)


def test_a_journal_grows_only_after_its_volumes() -> None:
    """Both were raised at once; a volume that cannot grow would keep its node from starting."""
    decision = decide(*moving(len(NODES), SAME, 4 * SIZE, 2 * SIZE))
    assert not applied(decision) & {"ConfigMap", "StatefulSet"}
    assert not any(isinstance(one, DeletePod) for one in decision.actions)
    (line,) = decision.unable
    assert f"{4 * SIZE} bytes" in line
