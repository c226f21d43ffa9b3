"""`waltz k8s plan`: the operator is asked, in its pod, because only there ZooKeeper and the admin ports can
be reached."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from waltz_operator.kube import kinds
from waltz_tools.errors import ToolError
from waltz_tools.k8s.access import Session

LABELS = {"app.kubernetes.io/name": "waltz-operator"}
CONTAINER = "operator"
PROGRAM = "/opt/waltz/bin/waltz-operator"


async def operator_pod(session: Session) -> str:
    """Name of a running pod of the operator; ToolError when there is none."""
    namespace = session.place.operator_namespace
    for pod in await session.kube.list(kinds.POD, namespace, LABELS):
        running = pod.get("status", {}).get("phase") == "Running"
        if running and "deletionTimestamp" not in pod["metadata"]:
            return str(pod["metadata"]["name"])
    raise ToolError(
        f"no operator runs in namespace {namespace}: give --operator-namespace, or install it (manifests/base)"
    )


async def ask_plan(session: Session, cluster: str, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The next pass over the cluster in words; with `spec` as if that were the specification. ToolError,
    KubeError."""
    await session.cluster(cluster)
    pod = await operator_pod(session)
    command = [PROGRAM, "plan", cluster, "--namespace", session.place.namespace, "--log-level", "ERROR"]
    if spec is not None:
        command += ["--spec", json.dumps(spec)]
    answer = await session.remote.run(session.place.operator_namespace, pod, CONTAINER, command)
    lines = answer.strip().splitlines()
    try:
        found = json.loads(lines[-1] if lines else "")
    except ValueError:
        raise ToolError("the operator gave no plan: is it of the same version as this command?") from None
    if not isinstance(found, dict):
        raise ToolError("the operator gave no plan: is it of the same version as this command?")
    return found
