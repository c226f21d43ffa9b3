"""Actions on Kubernetes, each one call of the API server. Used by `apply` alone.

An object that the look did not show is asked for by its name before it is applied: it may be somebody else's,
which is never written over.

Own writes of a pass are followed: a status that was planned on the resource version *before* our own change
of the finalizers is written on the one after it. Anybody else's change in between is a conflict, and the pass
ends.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from waltz_operator.api.metadata import FINALIZER
from waltz_operator.api.parse import status_body
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Kube
from waltz_operator.kube.errors import KubeConflictError, KubeError, KubeForeignError, KubeNotFoundError
from waltz_operator.kube.kinds import Kind
from waltz_operator.model.actions import (
    ApplyObject,
    DeleteJob,
    DeleteObject,
    DeletePod,
    DeletePVC,
    DisownObject,
    EmitEvent,
    GiveUpVolume,
    KubernetesAction,
    OwnObject,
    SetFinalizer,
    SetStatus,
    StartCopyJob,
)
from waltz_operator.model.ownership import belongs, of_an_earlier_one
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import ObjectKey
from waltz_operator.plan.status.unreadable import UnreadableError, unreadable_status
from waltz_operator.resources.common import owner
from waltz_operator.run.events import EventWriter
from waltz_operator.run.migrations_left import cluster_of
from waltz_operator.run.observe import Observation
from waltz_operator.run.overridden import remember

MAX_DROPPED = 4096
"""So many objects are remembered whose last status changed nothing."""

MAX_WRITTEN = 1024
"""So many statuses are known as our own when a watch reports them."""

RenderJob = Callable[[StartCopyJob, Observation], dict[str, Any]]


class KubernetesWriter:
    """Owner of nothing: what it remembers of a pass is in the pass's observation; of several passes only
    which status changed nothing when it was written, which would be written in each of them."""

    def __init__(self, kube: Kube, events: EventWriter, render_job: RenderJob) -> None:
        self._kube = kube
        self._events = events
        self._render_job = render_job
        self._dropped: dict[str, tuple[str, int]] = {}
        self._written: OrderedDict[str, None] = OrderedDict()

    async def carry_out(self, action: KubernetesAction, observation: Observation) -> None:
        """KubeError: refused or failed."""
        namespace = observation.snapshot.cluster.metadata.namespace
        match action:
            case ApplyObject():
                await self._apply(action, observation)
            case StartCopyJob():
                await self._start(action, observation)
            case DeleteObject():
                await self._delete(_kind(action.key.kind), namespace, action.key.name, action.uid)
            case DeletePod():
                await self._delete(kinds.POD, namespace, action.name, action.uid)
            case DeletePVC() | GiveUpVolume():
                await self._delete(kinds.PVC, namespace, action.name, action.uid)
            case DeleteJob():
                await self._delete(kinds.JOB, namespace, action.name, action.uid)
            case DisownObject() | OwnObject():
                await self._change_owners(action, observation)
            case SetFinalizer():
                await self._finalizer(action, namespace, observation)
            case EmitEvent():
                await self._events.emit(
                    regarding(action.about, observation),
                    action.reason,
                    action.text,
                    action.type,
                    at=action.at,
                )
            case SetStatus():
                await self._status(action, namespace, observation)

    def wrote(self, resource_version: str) -> bool:
        """Whether this is how a status that was written lately has left its object: then all that came before
        has been seen, or the write would have been a conflict. From any thread."""
        return resource_version in self._written

    async def tell_unreadable(self, error: UnreadableError) -> None:
        """Into the status of the object that cannot be read, when it is not there yet, and as an
        Event. KubeError."""
        body, status = error.body, unreadable_status(error)
        about = _about(body)
        if status is not None:
            metadata = {"resourceVersion": body["metadata"]["resourceVersion"]}
            patch = {"metadata": metadata, "status": status}
            kind = _kind(about["kind"])
            await self._kube.merge_patch(kind, about["namespace"], about["name"], patch, status=True)
        await self._events.emit(about, Reason.INVALID_SPEC.value, error.line, "Warning")

    async def migrations_of(self, namespace: str, cluster: str) -> list[Mapping[str, Any]]:
        """Migrations that name the cluster. KubeError."""
        bodies = await self._kube.list(kinds.WALTZ_MIGRATION, namespace)
        return [body for body in bodies if cluster_of(body) == cluster]

    async def release_migration(self, body: Mapping[str, Any]) -> None:
        """Take our finalizer off a migration, as it was read. KubeError."""
        metadata = body["metadata"]
        left = [name for name in metadata["finalizers"] if name != FINALIZER]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": left}}
        await self._kube.merge_patch(kinds.WALTZ_MIGRATION, metadata["namespace"], metadata["name"], patch)

    async def report_no_cluster(self, body: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Into the status of a migration, as it was read, and as an Event. KubeError."""
        about = _about(body)
        patch = {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "status": status}
        await self._kube.merge_patch(
            kinds.WALTZ_MIGRATION, about["namespace"], about["name"], patch, status=True
        )
        await self._events.emit(about, str(status["reason"]), str(status["message"]), "Warning")

    async def _apply(self, action: ApplyObject, observation: Observation) -> None:
        """KubeForeignError: the object of that name is somebody else's. A body with an empty resource version
        is to be new, one with another is what was read then; else the uid is the precondition."""
        body = dict(action.body)
        metadata = dict(body["metadata"])
        version = metadata.get("resourceVersion")
        if version == "":
            del metadata["resourceVersion"]
            await self._create(action.key, body | {"metadata": metadata}, observation)
            return
        if version is None:
            uid = action.uid or await self._uid_of_ours(action.key, observation)
            metadata |= {"uid": uid} if uid else {}
        stored = await self._kube.apply(body | {"metadata": metadata})
        remember(observation.overridden, action, stored, observation.snapshot.now)

    async def _create(self, key: ObjectKey, body: dict[str, Any], observation: Observation) -> None:
        try:
            await self._kube.create(body)
        except KubeConflictError as error:
            if error.reason == "AlreadyExists":
                await self._uid_of_ours(key, observation)  # whose it is: ours is a conflict
            raise

    async def _uid_of_ours(self, key: ObjectKey, observation: Observation) -> str:
        """Of the cluster's own object of that name; empty when there is none. KubeConflictError: it is of an
        earlier cluster of this name, and garbage collection has not been there yet."""
        cluster = observation.snapshot.cluster.metadata
        try:
            found = await self._kube.get(_kind(key.kind), cluster.namespace, key.name)
        except KubeNotFoundError:
            return ""
        if not belongs(found, cluster):
            raise KubeForeignError(*key)
        if of_an_earlier_one(found, cluster):
            raise KubeConflictError(f"{key.kind} {key.name} still goes with an earlier cluster", status=409)
        return str(found["metadata"]["uid"])

    async def _start(self, action: StartCopyJob, observation: Observation) -> None:
        try:
            await self._kube.create(self._render_job(action, observation))
        except KubeConflictError as error:
            if error.reason != "AlreadyExists":
                raise
            # the answer to an earlier attempt was lost, or it is somebody else's
            await self._uid_of_ours(ObjectKey(kinds.JOB.kind, action.name), observation)

    async def _delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        try:
            await self._kube.delete(kind, namespace, name, uid=uid)
        except KubeNotFoundError:
            return

    async def _change_owners(self, action: DisownObject | OwnObject, observation: Observation) -> None:
        cluster, kind = observation.snapshot.cluster.metadata, _kind(action.key.kind)
        try:
            found = await self._kube.get(kind, cluster.namespace, action.key.name)
        except KubeNotFoundError:
            return
        metadata = found["metadata"]
        if metadata["uid"] != action.uid:
            raise KubeConflictError(f"{action.key.kind} {action.key.name} is another one by now", status=409)
        present = list(metadata.get("ownerReferences") or ())
        wanted = [one for one in present if one.get("uid") != cluster.uid]
        if (len(wanted) < len(present)) == isinstance(action, OwnObject):
            return  # it is so already
        if isinstance(action, OwnObject):
            controlled = any(one.get("controller") for one in present)  # an object has one controller
            wanted.append(owner(observation.snapshot.cluster) | {"controller": not controlled})
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "ownerReferences": wanted}}
        await self._kube.merge_patch(kind, cluster.namespace, action.key.name, patch)

    async def _finalizer(self, action: SetFinalizer, namespace: str, observation: Observation) -> None:
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
        observation.own_writes[action.uid] = (str(before), str(after["metadata"]["resourceVersion"]))
        observation.written[action.uid] = after

    async def _status(self, action: SetStatus, namespace: str, observation: Observation) -> None:
        before, after = observation.own_writes.get(action.uid, ("", ""))
        kind = _kind(action.about.kind)
        body = status_body(action.status)
        what = hash(json.dumps(body, sort_keys=True))
        if self._dropped.get(action.uid) == (action.resource_version, what):
            return  # the definition is older than this operator, and has not all of these fields
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
                "status": body,
            },
            status=True,
        )
        version = str(written["metadata"]["resourceVersion"])
        self._written[version] = None
        while len(self._written) > MAX_WRITTEN:
            self._written.popitem(last=False)
        observation.own_writes[action.uid] = (action.resource_version, version)
        observation.written[action.uid] = written
        self._dropped.pop(action.uid, None)
        if version == action.resource_version:
            if len(self._dropped) >= MAX_DROPPED:
                self._dropped.clear()
            self._dropped[action.uid] = (version, what)


def _about(body: Mapping[str, Any]) -> dict[str, Any]:
    """What an Event about an object needs of it, from the object itself."""
    metadata = body["metadata"]
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
    }


def _kind(name: str) -> Kind:
    """Of an `ObjectKey`: kinds are distinguished by their name alone."""
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
