"""What a person asks the operator for: migrations, restarts, a pause. Bodies are made here, and written
through the session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from waltz_operator.api.metadata import API_VERSION
from waltz_operator.api.parse import parse_migration
from waltz_operator.kube import kinds
from waltz_operator.kube.errors import KubeConflictError
from waltz_tools.errors import ToolError, UsageError
from waltz_tools.k8s.access import Session

ENDED = ("Completed", "Cancelled", "Failed")
PARTS = {"storage": "restart-storage", "server": "restart-server", "zookeeper": "restart-zookeeper"}
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Wish:
    """One migration as given on the command line; exactly one of the first four."""

    move: str | None = None
    """`<group>-<node>:<group>-<node>`."""
    drain: str | None = None
    replace: str | None = None
    rebalance: str | None = None
    partitions: tuple[int, ...] | None = None
    dry_run: bool = False
    rate_limit_bytes: int | None = None
    by_bytes: bool = False


def migration_body(cluster: str, namespace: str, name: str, wish: Wish) -> dict[str, Any]:
    """The WaltzMigration. UsageError, ResourceError: one line for a person."""
    given = [kind for kind in ("move", "drain", "replace", "rebalance") if getattr(wish, kind) is not None]
    if len(given) != 1:
        raise UsageError("pass exactly one of --move, --drain, --replace, --rebalance")
    if wish.partitions is not None and given != ["move"]:
        raise UsageError("--partition goes with --move only")
    spec: dict[str, Any] = {"cluster": cluster}
    if wish.move is not None:
        source, colon, target = wish.move.partition(":")
        if not (source and colon and target):
            raise UsageError(
                f"--move takes FROM:TO, such as 1-0:1-1 (<group>-<node> each), not {wish.move!r}"
            )
        spec["move"] = {"from": source, "to": target}
        if wish.partitions is not None:
            spec["move"]["partitions"] = list(wish.partitions)
    else:
        key = "group" if given[0] == "rebalance" else "node"
        spec[given[0]] = {key: getattr(wish, given[0])}
    if wish.by_bytes:
        if given != ["rebalance"]:
            raise UsageError("--by-bytes goes with --rebalance only")
        spec["rebalance"]["by"] = "Bytes"
    if wish.dry_run:
        spec["dryRun"] = True
    if wish.rate_limit_bytes is not None:
        spec["rateLimitBytesPerSecond"] = wish.rate_limit_bytes
    metadata = {"name": name, "namespace": namespace}
    body = {"apiVersion": API_VERSION, "kind": "WaltzMigration", "metadata": metadata, "spec": spec}
    parse_migration(body)
    return body


async def migrate(session: Session, cluster: str, name: str, wish: Wish) -> dict[str, Any]:
    """Ask for a migration; the object as it was made."""
    await session.cluster(cluster)
    body = migration_body(cluster, session.place.namespace, name, wish)
    try:
        return await session.kube.create(body)
    except KubeConflictError:
        raise ToolError(f"a WaltzMigration {name} exists already: choose another --name") from None


async def follow(
    session: Session, name: str, timeout_seconds: float, show: Callable[[Mapping[str, Any]], None]
) -> Mapping[str, Any]:
    """Wait until a migration has ended (or, when only planned, has its plan); `show` gets each changed
    status. ToolError."""
    deadline = time.monotonic() + timeout_seconds
    last: Mapping[str, Any] = {}
    while True:
        body = await session.kube.get(kinds.WALTZ_MIGRATION, session.place.namespace, name)
        status = body.get("status", {})
        if status != last:
            show(status)
            last = status
        planned = body["spec"].get("dryRun", False) and status.get("phase") == "Planned"
        if planned or status.get("phase") in ENDED:
            return last
        if time.monotonic() > deadline:
            raise ToolError(
                f"migration {name} has not ended after {timeout_seconds:g} s; it is still in progress"
            )
        await asyncio.sleep(_POLL_SECONDS)


async def restart(session: Session, cluster: str, part: str, now: str) -> None:
    """Have all pods of a part restarted one at a time, as the gates permit."""
    await session.cluster(cluster)
    patch = {"metadata": {"annotations": {f"waltz.dev/{PARTS[part]}": now}}}
    await session.kube.merge_patch(kinds.WALTZ_CLUSTER, session.place.namespace, cluster, patch)


async def set_paused(session: Session, cluster: str, paused: bool) -> bool:
    """Whether that changed anything."""
    body = await session.cluster(cluster)
    if bool(body.get("spec", {}).get("paused", False)) == paused:
        return False
    version = body["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "spec": {"paused": paused}}
    await session.kube.merge_patch(kinds.WALTZ_CLUSTER, session.place.namespace, cluster, patch)
    return True
