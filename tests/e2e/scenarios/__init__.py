"""The scenarios, in the order in which a run takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.e2e.scenarios import deletion, failures, growth, moves, rolling, start
from tests.e2e.world import World


@dataclass(frozen=True, slots=True)
class Scenario:
    """`written`: the load runs meanwhile, is measured and judged. `disturbed`: the operator is killed at random meanwhile."""

    name: str
    run: Callable[[World], None]
    written: bool = True
    disturbed: bool = True


ALL = (
    Scenario("fresh install", start.install, written=False, disturbed=False),
    Scenario("nothing happens", start.nothing, disturbed=False),
    Scenario("examples are accepted", start.examples, disturbed=False),
    Scenario("planned storage restart", rolling.restart_storage),
    Scenario("planned server restart", rolling.restart_servers),
    Scenario("pods are killed", failures.kill_pods),
    Scenario("a group grows to two nodes, replicas move", moves.move),
    Scenario("a node is drained and taken out", moves.drain),
    Scenario("a lost disk is replaced", moves.replace_lost_disk),
    Scenario("scale out 3 -> 5 groups", growth.scale_out),
    Scenario("scale in 5 -> 3 groups", growth.scale_in),
    Scenario("images are upgraded", rolling.upgrade_images),
    Scenario("certificates are rotated", rolling.rotate_certificates),
    Scenario("a machine dies and comes back", failures.kill_machine),
    Scenario("deleted with Retain, adopted again", deletion.retain, written=False),
    Scenario("deleted with Delete", deletion.delete, written=False),
)
