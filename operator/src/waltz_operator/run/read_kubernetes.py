"""What the API server showed, turned into the values of `snapshot`. Pure; next stage: the planners."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from waltz_operator.api.base import quantity_bytes
from waltz_operator.api.metadata import (
    APPLIED_HASH,
    CLUSTER_UID,
    COPY_MIGRATION,
    COPY_PARTITION,
    COPY_SOURCE,
    COPY_TARGET,
    IMAGE,
    LABEL_COMPONENT,
    LABEL_GROUP,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    LABEL_NODE,
    MANAGED_BY,
    TEMPLATE_HASH,
    ZOOKEEPER_MEMBERS,
)
from waltz_operator.model.snapshot import (
    NO_POD,
    NOT_STARTED,
    DeploymentView,
    JobView,
    KubeView,
    ObjectKey,
    ObjectView,
    PodView,
    PVCView,
    SecretView,
    StatefulSetView,
)
from waltz_operator.model.times import seconds
from waltz_operator.resources.common import CONSOLE
from waltz_operator.resources.login import level_of
from waltz_runtime.exit_code import ExitCode

Object = Mapping[str, Any]

LABELS_JOB = ("batch.kubernetes.io/job-name", "job-name")

_STUCK = frozenset(
    (
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    )
)
_CONTAINERS = {"migration": "copy"}
"""Component → name of our container in its pods, where that is another one."""
_OF_DEPLOYMENTS = frozenset(("server", CONSOLE))
"""Components whose pods get a new name each."""


def _part(obj: Object, *path: str) -> Mapping[str, Any]:
    found: Any = obj
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _annotations(obj: Object) -> Mapping[str, str]:
    return _part(obj, "metadata", "annotations")


def _labels(obj: Object) -> Mapping[str, str]:
    return _part(obj, "metadata", "labels")


def _uid(obj: Object) -> str:
    return str(_part(obj, "metadata").get("uid", ""))


def _deleting(obj: Object) -> bool:
    return _part(obj, "metadata").get("deletionTimestamp") is not None


def _settled(obj: Object) -> bool:
    return _part(obj, "status").get("observedGeneration") == _part(obj, "metadata").get("generation")


def _template_hash(obj: Object) -> str:
    annotations = _part(obj, "spec", "template", "metadata", "annotations")
    return str(annotations.get(TEMPLATE_HASH, ""))


def object_view(obj: Object) -> ObjectView:
    """Any object of the operator."""
    return ObjectView(
        _uid(obj),
        str(_part(obj, "metadata").get("resourceVersion", "")),
        _annotations(obj).get(APPLIED_HASH),
        obj,
        _deleting(obj),
    )


def stateful_set(obj: Object) -> StatefulSetView:
    spec, status, labels = _part(obj, "spec"), _part(obj, "status"), _labels(obj)
    return StatefulSetView(
        _uid(obj),
        str(labels.get(LABEL_GROUP, "")),
        str(labels.get(LABEL_NODE, "")),
        _template_hash(obj),
        int(spec.get("replicas") or 0),
        int(status.get("readyReplicas") or 0),
        _settled(obj),
        _deleting(obj),
        _members(_part(obj, "spec", "template")),
        level_of(_annotations(_part(obj, "spec", "template"))),
    )


def _members(obj: Object) -> int:
    said = str(_annotations(obj).get(ZOOKEEPER_MEMBERS, ""))
    return int(said) if said.isdecimal() else 0


def deployment(obj: Object) -> DeploymentView:
    spec, status = _part(obj, "spec"), _part(obj, "status")
    wanted = int(spec.get("replicas") or 0)
    ready = int(status.get("readyReplicas") or 0)
    counts = {
        name: int(status.get(name) or 0) for name in ("replicas", "updatedReplicas", "availableReplicas")
    }
    calm = _settled(obj) and all(count == wanted for count in counts.values())
    login = level_of(_annotations(_part(obj, "spec", "template")))
    conditions = _conditions(obj)
    failure = _part(conditions, "ReplicaFailure")
    refused = str(failure.get("message") or failure.get("reason")) if failure.get("status") == "True" else ""
    stalls = (
        spec.get("paused") is True
        or bool(refused)
        or _part(conditions, "Progressing").get("status") == "False"
    )
    return DeploymentView(
        _uid(obj),
        _template_hash(obj),
        wanted,
        ready,
        calm,
        _deleting(obj),
        login,
        stalls,
        refused,
        seconds(failure.get("lastTransitionTime")) if refused else 0.0,
    )


def _conditions(obj: Object) -> dict[str, Object]:
    """By type."""
    found = _part(obj, "status").get("conditions") or ()
    return {str(one.get("type")): one for one in found if isinstance(one, Mapping)}


def pod(obj: Object) -> PodView:
    conditions = _conditions(obj)
    component = str(_labels(obj).get(LABEL_COMPONENT, ""))
    ours = _CONTAINERS.get(component, component)
    stuck, beside = _what_cannot_run(obj, conditions, ours)
    containers = _part(obj, "status").get("containerStatuses") or ()
    return PodView(
        _uid(obj),
        component,
        str(_annotations(obj).get(TEMPLATE_HASH, "")),
        _part(conditions, "Ready").get("status") == "True",
        _deleting(obj),
        stuck,
        beside,
        next(
            (since for one in containers if one.get("name") == ours and (since := _running_since(one))), None
        ),
        _members(obj),
        _addresses(obj),
        _image(obj, ours),
        level_of(_annotations(obj)),
        component == "storage" and bool(stuck) and _last_code(containers, ours) == ExitCode.JOURNAL,
        seconds(_part(obj, "metadata").get("creationTimestamp")),
        str(_annotations(obj).get(IMAGE, "")),
    )


def _last_code(containers: Iterable[Object], ours: str) -> int | None:
    """With which code our container ended last; None when it has not."""
    own = next((one for one in containers if one.get("name") == ours), {})
    ended = _part(own, "state", "terminated") or _part(own, "lastState", "terminated")
    code = ended.get("exitCode")
    return code if isinstance(code, int) else None


def _image(obj: Object, ours: str) -> str:
    """Of our container, as the pod was made."""
    containers = _part(obj, "spec").get("containers") or ()
    return next((str(one.get("image", "")) for one in containers if one.get("name") == ours), "")


def _running_since(container: Object) -> float:
    """0 when it does not run."""
    return seconds(_part(container, "state", "running").get("startedAt"))


def _over(obj: Object) -> bool:
    """Whether nothing of it runs, nor ever will."""
    return _part(obj, "status").get("phase") in ("Failed", "Succeeded")


def _replaced(obj: Object) -> bool:
    """Whether it is the record of a pod that was evicted, or ended with its machine. Another one takes its
    place, under another name, and it stays until a person or Kubernetes collects it."""
    return str(_labels(obj).get(LABEL_COMPONENT, "")) in _OF_DEPLOYMENTS and _over(obj)


def _addresses(obj: Object) -> tuple[str, ...]:
    status = _part(obj, "status")
    if _over(obj):
        return ()  # Kubernetes may give them to another pod
    listed = [one.get("ip") for one in status.get("podIPs") or ()]
    return tuple(dict.fromkeys(str(one) for one in (status.get("podIP"), *listed) if one))


def _what_cannot_run(obj: Object, conditions: Mapping[str, Object], ours: str) -> tuple[str, str]:
    """Why our container can't run, and which other one can't. A person or a webhook may have put any number
    beside ours, none of which keeps ours from running; those that run before it do."""
    status = _part(obj, "status")
    if status.get("phase") == "Failed":
        return str(status.get("reason") or "Failed"), ""
    scheduled = _part(conditions, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return "Unschedulable", ""
    own: Object = {}
    beside: list[Object] = []
    for container in status.get("containerStatuses") or ():
        if container.get("name") == ours:
            own = container
        else:
            beside.append(container)
    before = list(status.get("initContainerStatuses") or ())
    if "running" in _part(own, "state"):
        return "", _first_stuck([*before, *beside])
    first = next((reason for reason in map(_waits, (*before, own)) if reason), "")
    return first, _first_stuck(beside)


def _first_stuck(containers: Iterable[Object]) -> str:
    return next((f"{one.get('name')}: {reason}" for one in containers if (reason := _waits(one))), "")


def _waits(container: Object) -> str:
    reason = _part(container, "state", "waiting").get("reason")
    return str(reason) if reason in _STUCK else ""


def is_ours(obj: Object) -> bool:
    """Whether an object with the label of the instance is the operator's, or a volume claim that the managed
    ZooKeeper's StatefulSet made: a claim template cannot be changed, and ours does not say who manages it."""
    labels = _labels(obj)
    if labels.get(LABEL_MANAGED_BY) == MANAGED_BY:
        return True
    return labels.get(LABEL_NAME) == "waltz" and labels.get(LABEL_COMPONENT) == "zookeeper"


def claim(obj: Object, expandable: Mapping[str, bool]) -> PVCView:
    """`expandable`: storage class → whether its volumes can grow; classes that could not be read are not in
    it."""
    requested = _part(obj, "spec", "resources", "requests").get("storage")
    capacity = _part(obj, "status", "capacity").get("storage")
    resize = _part(_conditions(obj), "FileSystemResizePending")
    storage_class = _part(obj, "spec").get("storageClassName")
    labels = _labels(obj)
    return PVCView(
        _uid(obj),
        _bytes(requested) or 0,
        _bytes(capacity),
        None if storage_class is None else str(storage_class),
        str(labels.get(LABEL_GROUP, "")),
        str(labels.get(LABEL_NODE, "")),
        expandable.get(str(storage_class)),
        seconds(resize.get("lastTransitionTime")) if resize.get("status") == "True" else None,
        _deleting(obj),
        str(labels.get(LABEL_COMPONENT, "")),
        _owners(obj),
        seconds(_part(obj, "metadata").get("creationTimestamp")),
        _annotations(obj).get(CLUSTER_UID),
    )


def secret(obj: Object) -> SecretView:
    """Without what it holds."""
    return SecretView(
        _uid(obj),
        _owners(obj),
        seconds(_part(obj, "metadata").get("creationTimestamp")),
        _annotations(obj).get(CLUSTER_UID),
        _deleting(obj),
    )


def _owners(obj: Object) -> tuple[str, ...]:
    """Their uids."""
    return tuple(str(one.get("uid", "")) for one in _part(obj, "metadata").get("ownerReferences") or ())


def _bytes(quantity: object) -> int | None:
    try:
        return quantity_bytes(str(quantity)) if quantity is not None else None
    except ValueError:
        return None


def job(obj: Object, pods: Sequence[Object]) -> JobView | None:
    """A copy Job; None for one that does not say what it copies. Its report is the termination message of its
    pod. It is over when our container is: Kubernetes would wait for a proxy that a webhook has put beside
    it."""
    reported = _annotations(obj)
    partition = str(reported.get(COPY_PARTITION, ""))
    if not partition.isdecimal() or not reported.get(COPY_TARGET):
        return None
    status = _part(obj, "status")
    conditions = {str(c.get("type")): c for c in status.get("conditions") or () if c.get("status") == "True"}
    over = [] if {"Complete", "Failed"} & conditions.keys() else _ends(pods)
    well = "Complete" in conditions or any(one.get("exitCode") == 0 for one in over)
    state = "succeeded" if well else "failed" if over or "Failed" in conditions else "active"
    ended: Object = next((conditions[kind] for kind in ("Complete", "Failed") if kind in conditions), {})
    made = _part(obj, "metadata").get("creationTimestamp")
    started_at = _seconds(status.get("startTime") or made)
    report = _report(pods)
    waits, since = _why_waiting(pods, started_at) if state == "active" else ("", 0.0)
    message = str(report.get("error") or _part(conditions, "Failed").get("message") or "")
    ended_at = max((_seconds(one.get("finishedAt")) for one in over), default=0.0)
    through = report.get("verifiedThrough")
    copied, size = report.get("copied"), report.get("copiedBytes")
    return JobView(
        _uid(obj),
        str(reported.get(COPY_MIGRATION, "")),
        int(partition),
        str(reported.get(COPY_SOURCE, "")),
        str(reported.get(COPY_TARGET, "")),
        state,
        started_at,
        through if state == "succeeded" and isinstance(through, int) else None,
        str(report.get("checksum") or "") if state == "succeeded" else "",
        copied if isinstance(copied, int) else None,
        size if isinstance(size, int) and size >= 0 else None,
        message if state == "failed" else "",
        _deleting(obj),
        _seconds(ended.get("lastTransitionTime")) or ended_at,
        waits,
        since,
    )


def _ends(pods: Iterable[Object]) -> list[Object]:
    """How our container has ended in each pod of a copy Job; empty as long as it has not in one of them."""
    name = _CONTAINERS["migration"]
    found = []
    for one in pods:
        containers = _part(one, "status").get("containerStatuses") or ()
        own: Object = next((each for each in containers if each.get("name") == name), {})
        found.append(_part(own, "state", "terminated"))
    return found if all(found) else []


def _why_waiting(pods: Iterable[Object], started_at: float) -> tuple[str, float]:
    """Why no pod of a copy Job has begun, and since when at most; empty when one has."""
    name = _CONTAINERS["migration"]
    there = [one for one in pods if not _deleting(one)]
    since = max([started_at, *(_seconds(_part(one, "metadata").get("creationTimestamp")) for one in there)])
    for one in there:
        for container in _part(one, "status").get("containerStatuses") or ():
            state = _part(container, "state")
            if container.get("name") == name and ("running" in state or "terminated" in state):
                return "", 0.0
    if not there:
        return NO_POD, since
    stuck = next((why for one in there if (why := _what_cannot_run(one, _conditions(one), name)[0])), "")
    return stuck or NOT_STARTED, since


def _report(pods: Iterable[Object]) -> Mapping[str, Any]:
    """The newest readable termination message; empty when there is none, which proves nothing."""
    best: tuple[str, Mapping[str, Any]] = ("", {})
    for one in pods:
        for container in _part(one, "status").get("containerStatuses") or ():
            ended = _part(container, "state", "terminated")
            try:
                reported = json.loads(str(ended.get("message") or ""))
            except ValueError:
                continue
            if isinstance(reported, Mapping) and str(ended.get("finishedAt", "")) >= best[0]:
                best = (str(ended.get("finishedAt", "")), reported)
    return best[1]


def _seconds(text: object) -> float:
    try:
        return datetime.datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


def kube_view(
    lists: Mapping[str, Sequence[Object]],
    expandable: Mapping[str, bool],
    deployment_name: str,
    absent: Collection[str] = (),
) -> KubeView:
    """From the complete lists by kind. Pods, and what Kubernetes itself makes, are not among `objects`, and
    pods of servers and consoles whose place another takes are nowhere. `absent`: kinds that are not there."""

    def named(kind: str) -> dict[str, Object]:
        return {str(_part(obj, "metadata").get("name", "")): obj for obj in lists.get(kind, ())}

    objects = {
        ObjectKey(kind, name): object_view(obj)
        for kind in lists
        if kind != "Pod"
        for name, obj in named(kind).items()
    }
    pods = named("Pod")
    of_job: dict[str, list[Object]] = {}
    for one in pods.values():
        owner = next((str(_labels(one)[key]) for key in LABELS_JOB if key in _labels(one)), None)
        if owner is not None:
            of_job.setdefault(owner, []).append(one)
    jobs = {name: job(obj, of_job.get(name, ())) for name, obj in named("Job").items()}
    found = named("Deployment").get(deployment_name)
    return KubeView(
        objects,
        {name: stateful_set(obj) for name, obj in named("StatefulSet").items()},
        deployment(found) if found is not None else None,
        {name: pod(obj) for name, obj in pods.items() if not _replaced(obj)},
        {name: claim(obj, expandable) for name, obj in named("PersistentVolumeClaim").items()},
        {name: view for name, view in jobs.items() if view is not None},
        frozenset(absent),
    )
