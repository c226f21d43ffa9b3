"""More and fewer copies of everything."""

from __future__ import annotations

from typing import Any

from tests.e2e.world import World


def groups(world: World) -> list[dict[str, Any]]:
    """The groups of the specification, the shorthand written out."""
    spec = world.cluster()["spec"]
    found: list[dict[str, Any]] | None = spec.get("storage", {}).get("groups")
    return found or [{"name": str(number + 1), "count": 1} for number in range(spec["replicas"])]


def set_groups(world: World, wanted: list[dict[str, Any]]) -> None:
    """Say which groups there shall be."""
    world.kubectl.patch("waltzcluster", "ledger", {"spec": {"replicas": None, "storage": {"groups": wanted}}})


def scale_out(world: World) -> None:
    """Two more groups."""
    set_groups(world, [*groups(world), {"name": "4", "count": 1}, {"name": "5", "count": 1}])
    world.settle(300)


def scale_in(world: World) -> None:
    """The two last groups go again."""
    set_groups(world, [group for group in groups(world) if group["name"] not in ("4", "5")])
    world.settle(300)
