"""`waltz k8s shell`: a pod with the `waltz` command, the cluster's certificate and the file for clients, for
as long as the command runs.

The file is an annotation of the pod, which it sees as a file, so that the pod is all there is to remove. A
pod that nobody removed ends after `LIFETIME_SECONDS`. As an administrator it has the operator's certificate,
the only one that storage nodes take on their admin port, and the label of a copy job, which NetworkPolicies
let through to that port.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import yaml

from waltz_operator.api import topology
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import LABEL_CLIENT, LABEL_COMPONENT, LABEL_INSTANCE, LABEL_NAME
from waltz_operator.api.parse import stored_cluster
from waltz_operator.api.security import TlsMode
from waltz_operator.kube import kinds
from waltz_operator.kube.errors import KubeNotFoundError
from waltz_operator.resources.common import (
    MIGRATION,
    TLS_DIRECTORY,
    container,
    pod_basics,
)
from waltz_operator.resources.config import common_keys
from waltz_operator.resources.files import FILE_MODE, mounted, scratch, zookeeper_auth
from waltz_operator.resources.images import ImageDefaults
from waltz_operator.resources.images import image_of as image_of_version
from waltz_operator.resources.inputs import RenderInputs
from waltz_operator.resources.login import Level
from waltz_tools.errors import ToolError
from waltz_tools.k8s.access import Place, Session

LIFETIME_SECONDS = 4 * 3600
CONTAINER = "shell"
CLIENT_DIRECTORY = "/etc/waltz/client"
CLIENT_FILE = "client.yaml"
ANNOTATION = "waltz.dev/client-file"
_SERVER, _TOOLS = "waltz-server", "waltz-tools"
_POLL_SECONDS = 0.5
_WAIT = ["/opt/waltz/bin/python", "-c", "import signal; signal.pause()"]


def image_of(cluster: WaltzCluster, image: str | None) -> str:
    """The image of the tools: the one given, else the one next to the servers'. ToolError when that is not
    known."""
    server = cluster.spec.images.server or _server_of_version(cluster)
    head, _, tail = server.rpartition("/")
    name, colon, tag = tail.partition(":")
    if image is not None:
        return image
    if name != _SERVER or "@" in tag:
        raise ToolError(
            f"the image of the servers is {server}, so that of the tools is not known: pass --image"
        )
    return f"{head}/{_TOOLS}{colon}{tag}" if head else f"{_TOOLS}{colon}{tag}"


def _server_of_version(cluster: WaltzCluster) -> str:
    """The image that server pods run, else the one that the specification leads to; without its digest, which
    is that image's own."""
    found = next((one.image for one in cluster.status.running if one.component == "server"), None)
    if found is None:
        found = image_of_version(cluster, ImageDefaults(), cluster.spec.version, "server")
    return found.partition("@")[0]


def client_keys(cluster: WaltzCluster) -> dict[str, object]:
    """The configuration of a client, and of the commands that administer, in a pod that mounts a
    certificate."""
    common = common_keys(cluster, level=_level(cluster))
    prefixes = ("client.ssl", "ssl")
    if cluster.spec.tls.mode is TlsMode.DISABLED:
        return {**common, **{f"{prefix}.enabled": False for prefix in prefixes}}
    stores = {
        f"{prefix}.{store}.location": TLS_DIRECTORY
        for prefix in prefixes
        for store in ("keyStore", "trustStore")
    }
    return {**common, **stores}


def _level(cluster: WaltzCluster) -> Level:
    """What the pod does in a managed ZooKeeper: as the servers do."""
    return Level.parse(cluster.status.zookeeper.login)


def _certificate(cluster: WaltzCluster, secret: str | None, admin: bool) -> str | None:
    """Secret with a client's certificate, or the operator's; None without TLS. ToolError when only a person
    knows it."""
    if cluster.spec.tls.mode is TlsMode.DISABLED:
        return None
    wanted = "operator" if admin else "client"
    own = next((role.secret for role in topology.tls_roles(cluster) if role.role == wanted), None)
    if secret is None and own is None:
        raise ToolError(
            "certificates of this cluster are your own (tls.mode Secret): pass --secret NAME, a Secret with tls.crt, "
            "tls.key and ca.crt of a client"
        )
    return secret or own


def shell_pod(
    cluster: WaltzCluster, name: str, image: str, secret: str | None, *, admin: bool = False
) -> dict[str, Any]:
    """The pod. It has none of the labels by which Services, budgets and the operator find pods."""
    parts = [scratch(), zookeeper_auth(cluster, _level(cluster))]
    certificate = _certificate(cluster, secret, admin)
    if certificate is not None:
        source = {"secretName": certificate, "defaultMode": FILE_MODE}
        mount = {"name": "tls", "mountPath": TLS_DIRECTORY, "readOnly": True}
        parts.append(([{"name": "tls", "secret": source}], [mount]))
    field = {"fieldPath": f"metadata.annotations['{ANNOTATION}']"}
    file = {"items": [{"path": CLIENT_FILE, "fieldRef": field}]}
    mount = {"name": "client", "mountPath": CLIENT_DIRECTORY, "readOnly": True}
    parts.append(([{"name": "client", "downwardAPI": file}], [mount]))
    volumes, mounts = mounted(*parts)
    variables = {"WALTZ_CONFIG": f"{CLIENT_DIRECTORY}/{CLIENT_FILE}", "HOME": "/tmp"}
    environment = [{"name": key, "value": value} for key, value in variables.items()]
    main = container(cluster, CONTAINER, image, command=_WAIT, env=environment, volumeMounts=mounts)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": cluster.metadata.namespace,
            "labels": {
                LABEL_NAME: "waltz",
                LABEL_INSTANCE: cluster.metadata.name,
                LABEL_COMPONENT: MIGRATION if admin else "client",
                LABEL_CLIENT: "true",
            },
            "annotations": {ANNOTATION: yaml.safe_dump(client_keys(cluster), sort_keys=True)},
        },
        "spec": {
            **pod_basics(cluster, RenderInputs()),
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIFETIME_SECONDS,
            "terminationGracePeriodSeconds": 1,
            "containers": [main],
            "volumes": volumes,
        },
    }


@asynccontextmanager
async def opened(
    session: Session,
    name: str,
    image: str | None,
    secret: str | None,
    timeout_seconds: float,
    *,
    admin: bool = False,
) -> AsyncIterator[str]:
    """A pod that is ready; removed afterwards, also when it never came up. ToolError, KubeError."""
    cluster = stored_cluster(await session.cluster(name))
    pod_name = f"{name}-shell-{secrets.token_hex(3)}"
    body = shell_pod(cluster, pod_name, image_of(cluster, image), secret, admin=admin)
    made = await session.kube.create(body)
    try:
        await _ready(session, pod_name, timeout_seconds)
        yield pod_name
    finally:
        try:
            uid = str(made["metadata"].get("uid", ""))
            await session.kube.delete(kinds.POD, session.place.namespace, pod_name, uid=uid)
        except KubeNotFoundError:
            pass  # somebody was faster


async def _ready(session: Session, name: str, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while True:
        status = (await session.kube.get(kinds.POD, session.place.namespace, name)).get("status", {})
        conditions = {one.get("type"): one for one in status.get("conditions", ())}
        if conditions.get("Ready", {}).get("status") == "True":
            return
        if time.monotonic() > deadline or status.get("phase") in ("Failed", "Succeeded"):
            raise ToolError(f"pod {name} does not start: {_why(status, conditions)}")
        await asyncio.sleep(_POLL_SECONDS)


def _why(status: dict[str, Any], conditions: dict[Any, Any]) -> str:
    for one in status.get("containerStatuses", ()):
        state = one.get("state", {})
        found = state.get("waiting") or state.get("terminated") or {}
        if found.get("reason"):
            return ": ".join(str(found[key]) for key in ("reason", "message") if found.get(key))
    scheduled = conditions.get("PodScheduled", {})
    return str(scheduled.get("message") or status.get("message") or "it reports no reason")


def kubectl(place: Place, pod: str, command: Sequence[str], *, terminal: bool) -> list[str]:
    """The command line that attaches this terminal. ToolError when there is no kubectl."""
    found = kubectl_of(place, "waltz k8s shell attaches the terminal")
    return [*found, "exec", "-it" if terminal else "-i", pod, "-c", CONTAINER, "--", *(command or ("sh",))]


def kubectl_of(place: Place, why: str) -> list[str]:
    """The beginning of a command line of kubectl. ToolError when there is none, with what it is needed
    for."""
    program = shutil.which("kubectl")
    if program is None:
        raise ToolError(f"{why} with kubectl, which is not on PATH: install it")
    found = [program, "--namespace", place.namespace]
    if place.kubeconfig is not None:
        found += ["--kubeconfig", place.kubeconfig]
    if place.context is not None:
        found += ["--context", place.context]
    return found


async def attach(command: Sequence[str]) -> int:
    """Run it with this terminal; its exit code."""
    process = await asyncio.create_subprocess_exec(*command)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
