"""A WaltzCluster and its migrations as tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from waltz_tools.cli.common import Listing

Body = Mapping[str, Any]


def condition(body: Body, kind: str) -> Mapping[str, Any]:
    """One condition of a status; empty when it has none of that type."""
    conditions: Sequence[Mapping[str, Any]] = body.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one.get("type") == kind), {})


def overview(bodies: Sequence[Body]) -> Listing:
    """A line per cluster."""
    columns = ["Namespace", "Name", "Available", "Partitions", "Replicas", "Servers", "Version", "Reason"]
    listing = Listing("clusters", "Clusters", columns)
    for body in bodies:
        status = body.get("status", {})
        partitions = status.get("partitions") or {}
        healthy = f"{partitions.get('healthy', '?')}/{partitions.get('total', '?')}" if partitions else None
        listing.add(
            body["metadata"]["namespace"],
            body["metadata"]["name"],
            condition(body, "Available").get("status", "Unknown"),
            healthy,
            status.get("replicas"),
            status.get("serverCounts"),
            status.get("runningVersions"),
            status.get("reason"),
        )
    return listing


def details(body: Body, migrations: Sequence[Body]) -> list[Listing]:
    """Everything in the status of one cluster."""
    status = body.get("status", {})
    conditions = Listing("conditions", "Conditions", ["Type", "Status", "Reason", "Message"])
    for one in status.get("conditions", ()):
        conditions.add(one["type"], one["status"], one.get("reason"), one.get("message"))
    nodes = Listing(
        "nodes",
        "Storage nodes",
        ["Node", "Phase", "Ready", "Partitions", "Lag", "Free bytes", "Restart", "Message"],
    )
    for one in status.get("nodes", ()):
        nodes.add(
            one["name"],
            one.get("phase"),
            one.get("ready"),
            one.get("partitions"),
            one.get("worstLag"),
            one.get("diskFreeBytes"),
            one.get("restartNeeded"),
            one.get("message"),
        )
    return [overview([body]), conditions, nodes, _operation(status), _migrations(migrations)]


def _operation(status: Mapping[str, Any]) -> Listing:
    listing = Listing(
        "operation", "Under way", ["Kind", "Step", "Partition", "Source", "Target", "Message", "Blocked by"]
    )
    one = status.get("operation")
    if one:
        names = ("kind", "step", "partition", "source", "target", "message", "blockedBy")
        listing.add(*(one.get(name) for name in names))
    return listing


def _migrations(bodies: Sequence[Body]) -> Listing:
    listing = Listing("migrations", "Migrations", ["Name", "What", "Phase", "Progress", "Message"])
    for body in bodies:
        status = body.get("status", {})
        listing.add(
            body["metadata"]["name"],
            status.get("what"),
            status.get("phase", "Pending"),
            status.get("progress"),
            status.get("message"),
        )
    return listing


def restarts(plan: Mapping[str, Any]) -> Listing:
    """Pods that would be restarted, in their order."""
    listing = Listing(
        "restarts", "Would be restarted, in this order", ["Pod", "From", "To", "Why", "Waits for"]
    )
    for one in plan["restarts"]:
        listing.add(one["pod"], one["from"], one["to"], one["why"], one["waits"])
    return listing


def steps(plan: Mapping[str, Any]) -> list[Listing]:
    """What the next pass would do, and what it would not and why, with the migrations' own."""
    actions = Listing("actions", "The next pass would", ["Of", "Step", "Destructive"])
    blocked = Listing("blocked", "Blocked", ["Of", "What", "Reason", "Partition", "Text"])
    parts = {"cluster": plan, **plan.get("migrations", {})}
    for name, part in parts.items():
        for one in part["actions"]:
            actions.add(name, one["line"], one["destructive"])
        for one in part["blocked"]:
            blocked.add(name, one["what"], one["reason"], one["partition"], one["text"])
    return [actions, blocked]
