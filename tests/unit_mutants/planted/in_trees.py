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
        "nested_roots.py",
        'if path not in OWN and f"{path}/store" in data and',
        'if path not in OWN and path.count("/") == 1 and f"{path}/store" in data and',
        "A cluster below a znode whose name is one of a cluster's is deleted with the one around it.",
    ),
    _bug(
        "any_record_is_a_cluster",
        "seeding",
        "nested_roots.py",
        'if path not in OWN and f"{path}/store" in data and',
        "if path not in OWN and",
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
    _bug(
        "export_has_the_clusters_below_too",
        "export",
        "tree_copy.py",
        "        if not stat.ephemeral_owner and not is_below(path, nested)\n",
        "        if not stat.ephemeral_owner\n",
        "An import that was interrupted is refused: it lies above the other cluster, which it wrote itself.",
    ),
    _bug(
        "file_of_two_clusters_is_imported_whole",
        "export",
        "tree_file.py",
        "    return tree.alone()\n",
        "    return tree\n",
        "The same, with a file that an earlier release made.",
    ),
    # ---- a tree that is made again
    _bug(
        "rebuild_of_a_used_tree_is_continued",
        "A8",
        "rebuild_tree.py",
        "        if stat.version != _WRITTEN_ONCE:\n",
        "        if not stat.version:\n",
        "Ids that were given out since are given out again.",
    ),
    _bug(
        "tree_in_use_is_advised_to_be_deleted",
        "A8",
        "tree_copy.py",
        "        same = found.params.cluster_key == tree.params.cluster_key\n",
        "        same = False\n",
        "Whoever runs a rebuild again after its answer was lost deletes the good tree.",
    ),
    _cli(
        "rebuild_begins_anew_each_time",
        "A8",
        "zk_tree.py",
        "    return begun if begun is not None and _number_at(_NOT_BEFORE) <= begun <= number else number\n",
        "    return number\n",
        "A rebuild that was killed is refused when it is run again: it is another tree.",
    ),
    # ---- where an export goes
    _cli(
        "export_replaces_a_link",
        "export",
        "zk_tree.py",
        "            _replace(file.resolve(), content)  # of a link that what it leads to\n",
        "            _replace(file, content)\n",
        "A link to the newest export is a file from then on, and what it led to is never written again.",
    ),
    _cli(
        "export_replaces_a_socket",
        "export",
        "zk_tree.py",
        "        elif mode is not None and not stat.S_ISREG(mode):\n",
        "        elif mode is not None and stat.S_ISBLK(mode):\n",
        "What is not a file is replaced by one.",
    ),
    _cli(
        "export_on_standard_output_has_a_line_more",
        "export",
        "zk_tree.py",
        "    if _opened_already(file) == _STDOUT:\n        return\n",
        "",
        "What a pipe carries is no export: a line follows the tree.",
    ),
    # ---- many partitions at once
    _bug(
        "all_partitions_in_one_transaction",
        "A8",
        "accept_restored.py",
        "        if size > BATCH_BYTES or len(some) >= BATCH_OPS:\n",
        "        if size < 0:\n",
        "With thousands of partitions ZooKeeper drops the connection, and the outcome is never known.",
    ),
    _bug(
        "later_assignments_are_those_that_were_read",
        "A8",
        "accept_restored.py",
        "                maps = replace(maps, partitions=assigned, versions=",
        "                maps = replace(maps, versions=",
        "Of the assignments that are taken back only those of the last transaction stay.",
    ),
    # ---- giving up a replica of a node that is silent
    _bug(
        "frozen_node_is_waited_for_in_every_partition",
        "A1",
        "forget.py",
        "        answer = self._unreachable or await",
        "        answer = await",
        "With many partitions the emergency command takes hours, without a word.",
    ),
    _bug(
        "node_that_is_back_is_given_up",
        "A1",
        "forget.py",
        "                await self._check_once(partitions, remember=False)\n",
        "                pass\n",
        "A node that was restarted during the checks is given up in partitions that it holds.",
    ),
    _bug(
        "one_copy_that_fails_is_a_node_that_fails",
        "A1",
        "forget.py",
        "    return isinstance(answer, NoAnswer) and answer.unreachable\n",
        "    return isinstance(answer, NoAnswer)\n",
        "A node that cannot report one copy is given up in all partitions.",
    ),
    # ---- what is typed
    _cli(
        "typing_error_in_a_port_is_a_silent_node",
        "A8",
        "zk_tree.py",
        "    if not 0 < port_number < 65536:\n",
        "    if not 0 < port_number:\n",
        "A rebuild advises to name a node as lost whose admin port was mistyped.",
    ),
    _bug(
        "cluster_that_nobody_can_list",
        "seeding",
        "seeding.py",
        "    if not 0 <= num_partitions <= MAX_PARTITIONS:\n",
        "    if num_partitions < 0:\n",
        "A cluster is created whose partitions do not fit into memory, and their number can never be changed.",
    ),
)
