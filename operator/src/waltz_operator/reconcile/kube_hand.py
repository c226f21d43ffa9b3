"""Actions on Kubernetes, each one call of the API server. Used by ``apply`` alone.

Own writes of a pass are followed: a status that was planned on the resource version *before* our own change of the finalizers is written
on the one after it. Anybody else's change in between is a conflict, and the pass ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from waltz_operator.api.metadata import FINALIZER
from waltz_operator.api.parse import status_body
from waltz_operator.events import EventWriter
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Kube
from waltz_operator.kube.errors import KubeConflictError, KubeError, KubeNotFoundError
from waltz_operator.kube.kinds import Kind
from waltz_operator.reconcile.actions import (
    ApplyObject,
    DeleteJob,
    DeleteObject,
    DeletePod,
    DeletePVC,
    EmitEvent,
    SetStatus,
    StartCopyJob,
)
from waltz_operator.reconcile.finalizer import SetFinalizer
from waltz_operator.reconcile.observe import Observation
from waltz_operator.reconcile.snapshot import ObjectKey

KubeAction = (
    ApplyObject | DeleteObject | DeletePod | DeletePVC | SetFinalizer | StartCopyJob | DeleteJob
    | EmitEvent | SetStatus
)  # fmt: skip
Versions = dict[str, tuple[str, str]]
RenderJob = Callable[[StartCopyJob, Observation], dict[str, Any]]


class KubeHand:
    """Owner of nothing: what it remembers of a pass is in the pass's observation."""

    def __init__(self, kube: Kube, events: EventWriter, render_job: RenderJob) -> None:
        self._kube = kube
        self._events = events
        self._render_job = render_job

    async def carry_out(self, action: KubeAction, observation: Observation) -> None:
        """KubeError: refused or failed."""
        namespace = observation.snapshot.cluster.metadata.namespace
        match action:
            case ApplyObject():
                await self._apply(dict(action.body))
            case StartCopyJob():
                await self._start(action, observation)
            case DeleteObject():
                await self._delete(_kind(action.key.kind), namespace, action.key.name, action.uid)
            case DeletePod():
                await self._delete(kinds.POD, namespace, action.name, action.uid)
            case DeletePVC():
                await self._delete(kinds.PVC, namespace, action.name, action.uid)
            case DeleteJob():
                await self._delete(kinds.JOB, namespace, action.name, action.uid)
            case SetFinalizer():
                await self._finalizer(action, namespace, observation.own_writes)
            case EmitEvent():
                await self._events.emit(
                    regarding(action.about, observation), action.reason, action.text, action.type
                )
            case SetStatus():
                await self._status(action, namespace, observation.own_writes)

    async def _apply(self, body: dict[str, Any]) -> None:
        """A body with an empty resource version is to be new: somebody else's object of that name is a conflict."""
        if body["metadata"].get("resourceVersion") == "":
            await self._kube.create(body | {"metadata": _without(body["metadata"], "resourceVersion")})
        else:
            await self._kube.apply(body)

    async def _start(self, action: StartCopyJob, observation: Observation) -> None:
        job = self._render_job(action, observation)
        try:
            await self._kube.create(job)
        except KubeConflictError as error:
            if error.reason != "AlreadyExists":
                raise
            # the answer to an earlier attempt was lost, or the next look will show whose it is

    async def _delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        try:
            await self._kube.delete(kind, namespace, name, uid=uid)
        except KubeNotFoundError:
            return

    async def _finalizer(self, action: SetFinalizer, namespace: str, versions: Versions) -> None:
        kind = _kind(action.key.kind)
        try:
            found = await self._kube.get(kind, namespace, action.key.name)
        except KubeNotFoundError:
            if not action.present:
                return
            raise
        metadata = found["metadata"]
        if metadata["uid"] != action.uid:
            raise KubeConflictError(f"{action.key.kind} {action.key.name} is another one by now", status=409)
        present = list(metadata.get("finalizers") or ())
        wanted = [name for name in present if name != FINALIZER]
        if action.present:
            wanted.append(FINALIZER)
        if action.present == (FINALIZER in present):
            return
        before = metadata["resourceVersion"]
        patch = {"metadata": {"resourceVersion": before, "finalizers": wanted}}
        after = await self._kube.merge_patch(kind, namespace, action.key.name, patch)
        versions[action.uid] = (str(before), str(after["metadata"]["resourceVersion"]))

    async def _status(self, action: SetStatus, namespace: str, versions: Versions) -> None:
        before, after = versions.get(action.uid, ("", ""))
        kind = _kind(action.about.kind)
        written = await self._kube.replace(
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {
                    "name": action.about.name,
                    "namespace": namespace,
                    "uid": action.uid,
                    "resourceVersion": after
                    if action.resource_version == before
                    else action.resource_version,
                },
                "status": status_body(action.status),
            },
            status=True,
        )
        versions[action.uid] = (action.resource_version, str(written["metadata"]["resourceVersion"]))


def _without(metadata: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key != name}


def _kind(name: str) -> Kind:
    """Of an ``ObjectKey``: kinds are told apart by their name alone."""
    found = [kind for kind in kinds.ALL if kind.kind == name]
    if len(found) != 1:
        raise KubeError(f"the operator does not know objects of kind {name}")
    return found[0]


def regarding(about: ObjectKey, observation: Observation) -> dict[str, Any]:
    """The object an Event is about, which is the cluster, one of its migrations, or one of its objects."""
    snapshot = observation.snapshot
    kind = _kind(about.kind)
    uid = ""
    if about.kind == kinds.WALTZ_CLUSTER.kind:
        uid = snapshot.cluster.metadata.uid
    elif about.kind == kinds.WALTZ_MIGRATION.kind:
        uid = next((m.metadata.uid for m in snapshot.migrations if m.metadata.name == about.name), "")
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": about.name,
        "namespace": snapshot.cluster.metadata.namespace,
        "uid": uid,
    }
