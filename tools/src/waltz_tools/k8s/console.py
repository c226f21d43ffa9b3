"""`waltz k8s console`: a way through kubectl to the console of a cluster, and the link that opens it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from waltz_operator.api import topology
from waltz_operator.api.parse import stored_cluster
from waltz_operator.kube import kinds
from waltz_operator.kube.errors import KubeNotFoundError
from waltz_operator.resources.console import TOKEN_KEY, scheme
from waltz_tools.errors import ToolError
from waltz_tools.k8s.access import Place, Session
from waltz_tools.k8s.shell import kubectl_of


async def link(session: Session, name: str, port: int) -> str:
    """What a browser on this machine opens, with the token behind the #. ToolError when the cluster has no
    console, or none that listens."""
    cluster = stored_cluster(await session.cluster(name))
    if not cluster.spec.console.enabled:
        raise ToolError(f"{name} has no console: set spec.console.enabled to true")
    found = cluster.status.console
    if found is None or not found.ready:
        why = f": {found.message}" if found is not None and found.message else ""
        raise ToolError(f"the console of {name} is not ready{why}")
    return f"{scheme(cluster)}://localhost:{port}/#token={await _token(session, topology.console_secret(cluster))}"


async def _token(session: Session, secret: str) -> str:
    try:
        body = await session.kube.get(kinds.SECRET, session.place.namespace, secret)
    except KubeNotFoundError:
        raise ToolError(f"there is no Secret {secret}, which has the token of the console") from None
    data: Mapping[str, Any] = body.get("data") or {}
    try:
        return base64.b64decode(str(data.get(TOKEN_KEY, "")), validate=True).decode("ascii").strip()
    except (binascii.Error, ValueError):
        raise ToolError(f"the Secret {secret} holds no token") from None


def forwarding(place: Place, name: str, port: int) -> list[str]:
    """The command line that forwards a port of this machine's loopback. ToolError when there is no
    kubectl."""
    service = f"service/{name}-console"
    ports = f"{port}:{topology.CONSOLE_PORT}"
    return [*kubectl_of(place, "waltz k8s console forwards a port"), "port-forward", service, ports]
