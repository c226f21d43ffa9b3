"""How many servers the managed ZooKeeper has, and may have next. Pure (ADR 17).

A server knows the members of its ensemble from a file that is named in its pod's template; a pod never
changes it. Members are added one at a time, and the next one only when every server is seen to run and to
serve with the present number, and it is in the status: so no two numbers that are in force at one time differ
by more than one, and a majority of the one always meets a majority of the other. What was added is never
taken away.
"""

from __future__ import annotations

from waltz_operator.model.desired import Desired
from waltz_operator.model.snapshot import KubeView

STEADY_SECONDS = 20.0
"""A second server that has run for so long comes up; one that is out of memory does not."""


def members(desired: Desired, kube: KubeView) -> int:
    """The number that the StatefulSet is to have now: what it has, or one more; of a new ensemble, which has
    no data that could be lost, what is wanted."""
    wanted, present = len(desired.zookeeper_claims), _present(desired, kube)
    if present == 0 or present >= wanted:
        return present or wanted
    return present + 1 if complete(desired, kube) else present


def _present(desired: Desired, kube: KubeView) -> int:
    """As the StatefulSet says. One of an earlier release says it by its pods, whose number never changed.
    Where it is gone, as was recorded: claims beyond that are of an earlier life. Where nothing was recorded,
    the claims show how many there were; without any, all of it is new."""
    view = kube.statefulsets.get(desired.zookeeper_set)
    if view is not None and (view.members or view.replicas):
        return view.members or view.replicas
    left = _claimed(desired, kube)
    return left and (desired.zookeeper_members or left)


def _claimed(desired: Desired, kube: KubeView) -> int:
    return max((number + 1 for number in claims(desired, kube).values()), default=0)


def to_record(desired: Desired, kube: KubeView) -> int:
    """The number that the status is to have: what the StatefulSet says, and the last one while it is gone."""
    if not desired.zookeeper_set:
        return 0
    gone = kube.statefulsets.get(desired.zookeeper_set) is None
    return desired.zookeeper_members if gone else _present(desired, kube)


def _is_recorded(desired: Desired, kube: KubeView) -> bool:
    """Whether the number is in the status, so that the recorded one is never behind by more than one. Without
    leftover claims it need not be."""
    present = _present(desired, kube)
    if not desired.zookeeper_members:
        return _claimed(desired, kube) <= present
    return desired.zookeeper_members == present


def claims(desired: Desired, kube: KubeView) -> dict[str, int]:
    """The volume claims of the ensemble that are there, also beyond what is wanted: name → number of the
    server."""
    prefix = f"data-{desired.zookeeper_set}-"
    found = {
        name: name.removeprefix(prefix)
        for name, view in kube.pvcs.items()
        if desired.zookeeper_set and name.startswith(prefix) and view.component == "zookeeper"
    }
    return {name: int(number) for name, number in found.items() if number.isdecimal()}


def complete(desired: Desired, kube: KubeView) -> bool:
    """Whether every server runs with the present number of members, which is recorded, and serves, and none
    has a volume that goes with its pod: each is restarted when the ensemble grows."""
    view = kube.statefulsets.get(desired.zookeeper_set)
    if view is None or view.deleting or not view.settled or not _is_recorded(desired, kube):
        return False
    return view.replicas == _present(desired, kube) and all(
        (pod := kube.pods.get(name)) is not None
        and pod.ready
        and not pod.deleting
        and pod.members == view.members
        and not ((claim := kube.pvcs.get(f"data-{name}")) is not None and claim.deleting)
        for name in servers(desired, kube)
    )


def servers(desired: Desired, kube: KubeView) -> tuple[str, ...]:
    """The pods of the present number."""
    if not desired.zookeeper_set:
        return ()
    count = _present(desired, kube) or len(desired.zookeeper_claims)
    return tuple(f"{desired.zookeeper_set}-{number}" for number in range(count))


def not_serving(desired: Desired, kube: KubeView) -> tuple[str, ...]:
    """Those of `servers` that do not serve: their pod is not there, or not ready."""
    return tuple(
        name for name in servers(desired, kube) if (pod := kube.pods.get(name)) is None or not pod.ready
    )


def joins(desired: Desired, kube: KubeView, name: str, now: float) -> bool:
    """Whether the pod is the single server that the second one waits for: none can serve beside one that does
    not know of an ensemble, so this one goes down when the second one runs, and is not one that crashes again
    and again."""
    view, pod = kube.statefulsets.get(desired.zookeeper_set), kube.pods.get(name)
    second = kube.pods.get(f"{desired.zookeeper_set}-1")
    if view is None or view.members != 2 or pod is None or second is None or name.endswith("-1"):
        return False
    steady = second.running_since is not None and now - second.running_since >= STEADY_SECONDS
    return pod.members != 2 and second.members == 2 and steady and not second.deleting
