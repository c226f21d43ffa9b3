"""More and fewer copies of everything."""

from __future__ import annotations

from typing import Any

from tests.e2e.kubectl import wait_until
from tests.e2e.world import World

NEW = ("4", "5")
ENDING_SECONDS = 60
"""A pod that is taken away may take its period of grace; the operator does not wait for it."""


def groups(world: World) -> list[dict[str, Any]]:
    """The groups of the specification, the shorthand written out."""
    spec = world.cluster()["spec"]
    found: list[dict[str, Any]] | None = spec.get("storage", {}).get("groups")
    return found or [{"name": str(number + 1), "count": 1} for number in range(spec["replicas"])]


def set_groups(world: World, wanted: list[dict[str, Any]]) -> None:
    """Say which groups there shall be."""
    world.kubectl.patch("waltzcluster", "ledger", {"spec": {"replicas": None, "storage": {"groups": wanted}}})


def scale_out(world: World) -> None:
    """Two more groups, each with a copy of every partition."""
    set_groups(world, [*groups(world), *({"name": name, "count": 1} for name in NEW)])
    world.settle()
    body = world.cluster()
    held = {node["name"]: node["partitions"] for node in body["status"]["nodes"]}
    if not held.get("4-0") == held.get("5-0") == body["spec"]["partitions"]:
        raise AssertionError(f"new groups without all copies: {held}")


def scale_in(world: World) -> None:
    """The two last groups go again."""
    set_groups(world, [group for group in groups(world) if group["name"] not in NEW])
    world.settle()
    which = f"waltz.dev/group in ({','.join(NEW)})"
    wait_until("the last pods have ended", lambda: not world.kubectl.list("pods", which), ENDING_SECONDS)
