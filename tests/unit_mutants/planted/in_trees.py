"""Planted bugs in the trees of clusters in ZooKeeper: nested ones, exports, and what is made again."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("libs/admin/src/waltz_admin")
_cli = bugs_in("tools/src/waltz_tools/cli")

TREE_BUGS = (
    # ---- clusters below each other
    _bug(
        "clusters_below_known_znodes_are_not_seen",
        "seeding",
        "nested.py",
        'not in own and f"{path}/store" in found',
        'not in own and path.split("/")[1] not in ("store", "ids", "producers") and f"{path}/store" in found',
        "A cluster below a znode whose name is one of a cluster's is deleted with the one around it.",
    ),
    _bug(
        "any_record_is_a_cluster",
        "seeding",
        "nested.py",
        'not in own and f"{path}/store" in found and',
        "not in own and",
        "A cluster with producers cannot be deleted: their records read as the name of another one.",
    ),
    _bug(
        "cluster_made_under_an_older_view_of_the_znodes_above",
        "seeding",
        "nested.py",
        "        checks.append(CheckOp(path, stat.version))\n",
        "",
        "Two clusters that are created at the same time lie below each other, and nobody is informed.",
    ),
    _bug(
        "cluster_that_came_below_in_the_same_moment_is_not_noticed",
        "seeding",
        "seeding.py",
        "            await check_none_below(store, paths)\n        return CreateResult",
        "            pass\n        return CreateResult",
        "The same, when the inner one is written first.",
    ),
    _bug(
        "cluster_that_came_below_during_an_import_is_not_noticed",
        "seeding",
        "tree_copy.py",
        "    ops = await check_alone(store, paths)\n",
        "    ops: list[Op] = []\n",
        "An import is completed although another cluster was created below it, or above it, meanwhile.",
    ),
)
