"""`waltz k8s upgrade`: another release for a cluster. The operator's own planner is asked first, in its pod
(`preview`): whether the step is allowed, and what it would restart."""

from __future__ import annotations

from typing import Any

from waltz_operator.kube import kinds
from waltz_tools.errors import ToolError
from waltz_tools.k8s.access import Session
from waltz_tools.k8s.preview import ask_plan
from waltz_tools.k8s.view import condition


async def ask(session: Session, cluster: str, version: str) -> dict[str, Any]:
    """`restarts`: pods in the order in which they would be restarted; `refused`: why the step is not begun,
    empty when it is. Nothing is written. ToolError, KubeError."""
    body = await session.cluster(cluster)
    spec = {**body["spec"], "version": version}
    explicit = sorted({"server", "storage", "zookeeper"} & set(spec.get("images", {})))
    found = await ask_plan(session, cluster, spec)
    if "restarts" not in found:
        raise ToolError("the operator knows no versions: it is of an earlier release than this command")
    valid = condition(found, "Valid")
    refused = str(valid.get("message", "")) if valid.get("status") == "False" else ""
    if not refused and explicit:
        names = ", ".join(f"images.{name}" for name in explicit)
        refused = f"{names} of the specification would win over the version: take them out first"
    return {"version": version, "restarts": found["restarts"], "refused": refused}


async def begin(session: Session, cluster: str, version: str) -> None:
    """Write the version into the specification."""
    namespace = session.place.namespace
    await session.kube.merge_patch(kinds.WALTZ_CLUSTER, namespace, cluster, {"spec": {"version": version}})
