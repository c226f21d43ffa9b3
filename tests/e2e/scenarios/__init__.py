"""The scenarios, in the order in which a run takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.e2e.scenarios import (
    adoption,
    attacks,
    command,
    console,
    deletion,
    examples,
    failures,
    families,
    first_write,
    gaps,
    growth,
    images,
    lost_tree,
    mistakes,
    moves,
    operators,
    rolling,
    spark,
    start,
    tenants,
    times,
    uninstall,
    zookeeper,
)
from tests.e2e.world import World


@dataclass(frozen=True, slots=True)
class Scenario:
    """`written`: the load runs meanwhile, is measured and judged. `disturbed`: the operator is killed at
    random meanwhile. `beside`: it runs while the next ones do, until the first one that is not `written`.
    `interval_seconds`: how often each partition is appended to; short where gaps are compared with targets,
    since the load takes its part of a small machine. `long`: only `make e2e-long` has it."""

    name: str
    run: Callable[[World], None]
    written: bool = True
    disturbed: bool = True
    beside: bool = False
    interval_seconds: float = 0.05
    long: bool = False


ALL = (
    Scenario("fresh install", start.install, written=False, disturbed=False),
    Scenario("the first write", first_write.follow_the_page, written=False, disturbed=False),
    Scenario("nothing happens", start.nothing, disturbed=False, interval_seconds=0.01),
    Scenario("partitions of a hot server move", moves.hot_server, long=True),
    Scenario("examples are applied", examples.apply_all, written=False, disturbed=False, beside=True),
    Scenario("waltz k8s shows it", command.look, disturbed=False),
    Scenario("a console is added", console.add, disturbed=False),
    Scenario("images are small and end in order", images.hold_and_stop, disturbed=False),
    Scenario("how long it takes", times.measure, written=False, disturbed=False, long=True),
    Scenario("planned storage restart", rolling.restart_storage),
    Scenario("planned server restart", rolling.restart_servers),
    Scenario("restarts wait for the window", rolling.restart_in_window),
    Scenario("another image, and back in the middle", mistakes.flip),
    Scenario("an image that is not there, and a drain", mistakes.missing_image, disturbed=False),
    Scenario("pods are killed", failures.kill_pods),
    Scenario("the operator's Lease is stolen", operators.steal_lease, disturbed=False),
    Scenario("a typing error, and objects deleted", tenants.typing_error, disturbed=False),
    Scenario("a neighbour's mistake during a roll", operators.neighbour, long=True),
    Scenario("two installations", operators.second_installation, disturbed=False, long=True),
    Scenario("a size that the class refuses", mistakes.impossible_size, long=True),
    Scenario("the quota of pods is exhausted", mistakes.exhausted_quota, long=True),
    Scenario("names do not resolve for a while", mistakes.names_are_gone, long=True),
    Scenario("a group grows to two nodes, replicas move", moves.move),
    Scenario("a migration that leads nowhere fails", moves.give_up),
    Scenario("migrations deleted, and against each other", attacks.contradict, long=True),
    Scenario("write gaps of planned operations", gaps.measure, disturbed=False, interval_seconds=0.01),
    Scenario(
        "Spark streaming job, executor and driver killed",
        spark.streaming,
        written=False,
        disturbed=False,
        beside=True,
    ),
    Scenario("a node is drained and taken out", moves.drain),
    Scenario("a lost disk is replaced", moves.replace_lost_disk),
    Scenario("a lost journal is replaced", moves.replace_lost_journal, long=True),
    Scenario("all StatefulSets are deleted", attacks.lose_stateful_sets, long=True),
    Scenario("every owned object is deleted", attacks.delete_everything_owned, long=True),
    Scenario("storms of pods", attacks.storm, long=True),
    Scenario("groups added and taken back", attacks.change_of_mind, long=True),
    Scenario("one disk after another is lost", attacks.lose_disks_in_turn, long=True),
    Scenario("certificates have expired", attacks.expired_certificates, long=True),
    Scenario("the credentials for ZooKeeper are deleted", attacks.lose_credentials, long=True),
    Scenario("scale out 3 -> 5 groups", growth.scale_out),
    Scenario("scale in 5 -> 3 groups", growth.scale_in),
    Scenario("images are upgraded", rolling.upgrade_images),
    Scenario("certificates are rotated", rolling.rotate_certificates),
    Scenario("ZooKeeper's StatefulSet is deleted", zookeeper.lose_stateful_set, disturbed=False),
    Scenario("ZooKeeper grows 1 -> 3", zookeeper.grow),
    Scenario("ZooKeeper is opened and closed", zookeeper.open_and_close, long=True),
    Scenario("ZooKeeper is lost, the tree is made again", lost_tree.rebuild, long=True),
    Scenario("ZooKeeper is lost, the tree is imported", lost_tree.bring_back, long=True),
    Scenario("a machine is drained", failures.drain_machine, long=True),
    Scenario("a machine is gone for good", failures.lose_machine, long=True),
    Scenario("a machine dies and comes back", failures.kill_machine),
    Scenario("deleted with Retain, adopted again", deletion.retain, written=False),
    Scenario("deleted with Delete", deletion.delete, written=False),
    Scenario("pods have IPv6 addresses only", families.ipv6, written=False, disturbed=False, long=True),
    Scenario(
        "pods have addresses of both families", families.dual, written=False, disturbed=False, long=True
    ),
    Scenario("a cluster of 0.13.2 is adopted", adoption.adopt, written=False, disturbed=False, long=True),
    Scenario("the operator is uninstalled", uninstall.uninstall, written=False, disturbed=False),
    Scenario("the operator of one namespace", uninstall.namespaced, written=False, disturbed=False),
)
