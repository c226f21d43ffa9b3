"""`waltz k8s report`: what a supporter needs, in one archive, without secrets.

Secrets are not even read. Whatever cannot be read is in the archive as the reason why, so that a person with
few permissions gets a report too.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from waltz_operator.kube import kinds
from waltz_operator.kube.errors import KubeError
from waltz_operator.kube.kinds import Kind
from waltz_tools.errors import ToolError
from waltz_tools.k8s.access import Session
from waltz_tools.k8s.logs import PodLogs
from waltz_tools.k8s.preview import LABELS, ask_plan
from waltz_tools.k8s.redact import redact, redact_text
from waltz_tools.local import private

_KINDS: tuple[Kind, ...] = (
    kinds.STATEFUL_SET,
    kinds.DEPLOYMENT,
    kinds.JOB,
    kinds.POD,
    kinds.PVC,
    kinds.SERVICE,
    kinds.CONFIG_MAP,
    kinds.POD_DISRUPTION_BUDGET,
    kinds.NETWORK_POLICY,
)

Files = dict[str, str]


async def collect(session: Session, cluster: str, logs: PodLogs) -> Files:
    """File names and contents. ToolError when there is no such cluster."""
    place = session.place
    body = await session.cluster(cluster)
    files: Files = {"cluster.yaml": _yaml(body)}
    labels = {"app.kubernetes.io/instance": cluster}
    files["migrations.yaml"] = await _list(session, kinds.WALTZ_MIGRATION, place.namespace, None)
    for kind in _KINDS:
        files[f"objects/{kind.plural}.yaml"] = await _list(session, kind, place.namespace, labels)
    files["events.yaml"] = await _list(session, kinds.EVENT, place.namespace, None)
    files["operator/pods.yaml"] = await _list(session, kinds.POD, place.operator_namespace, LABELS)
    files["operator/lease.yaml"] = await _list(session, kinds.LEASE, place.operator_namespace, None)
    try:
        files["plan.json"] = json.dumps(redact(await ask_plan(session, cluster)), indent=2)
    except (KubeError, ToolError) as error:
        files["plan.json"] = f"{error}\n"
    places: Sequence[tuple[str, str, Mapping[str, str]]] = (
        ("logs", place.namespace, labels),
        ("operator/logs", place.operator_namespace, LABELS),
    )
    for folder, namespace, wanted in places:
        files |= await _logs(session, logs, folder, namespace, wanted)
    return files


async def _list(session: Session, kind: Kind, namespace: str, labels: Mapping[str, str] | None) -> str:
    try:
        return _yaml(await session.kube.list(kind, namespace, labels))
    except KubeError as error:
        return f"# {error}\n"


async def _logs(
    session: Session, logs: PodLogs, folder: str, namespace: str, labels: Mapping[str, str]
) -> Files:
    files: Files = {}
    try:
        pods = await session.kube.list(kinds.POD, namespace, labels)
    except KubeError as error:
        return {f"{folder}/none.txt": f"{error}\n"}
    for pod in pods:
        name = pod["metadata"]["name"]
        for container in pod.get("spec", {}).get("containers", ()):
            restarted = any(
                one.get("name") == container["name"] and one.get("restartCount")
                for one in pod.get("status", {}).get("containerStatuses", ())
            )
            for previous in (False, True) if restarted else (False,):
                path = f"{folder}/{name}.{container['name']}{'.previous' if previous else ''}.log"
                try:
                    text = await logs.read(namespace, name, container["name"], previous=previous)
                except KubeError as error:
                    text = f"{error}\n"
                files[path] = redact_text(text)
    return files


def _yaml(value: Any) -> str:
    text: str = yaml.safe_dump(redact(value), sort_keys=False, width=120)
    return text


def write_archive(files: Mapping[str, str], path: Path, now_seconds: float) -> int:
    """A gzipped tar with one folder; its size in bytes. ToolError when it cannot be written or exists."""
    folder = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    try:
        with (
            open(path, "xb", opener=private.opener) as file,
            tarfile.open(fileobj=file, mode="w:gz") as archive,
        ):
            for name, text in sorted(files.items()):
                data = text.encode()
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(now_seconds), private.FILE_MODE
                archive.addfile(entry, io.BytesIO(data))
    except FileExistsError:
        raise ToolError(f"{path} exists already") from None
    except OSError as error:
        raise ToolError(f"cannot write {path}: {error.strerror or error}") from None
    return path.stat().st_size
