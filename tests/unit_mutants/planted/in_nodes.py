"""Planted bugs in the administration of storage nodes: which node is which, and replacing one."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("libs/admin/src/waltz_admin")
_tools_bug = bugs_in("tools/src/waltz_tools")
_protocol_bug = bugs_in("libs/protocol/src/waltz_protocol")

NODE_BUGS = (
    # ---- one node under two names
    _protocol_bug(
        "hello_of_a_stranger_is_kept",
        "bounds",
        "aio/channel.py",
        "hello.brief()",
        "hello",
        "Each connection to a port holds up to 64 KiB for as long as it is there.",
    ),
    _bug(
        "node_is_replaced_with_itself_under_another_name",
        "A6",
        "same_node.py",
        "        if this.is_same(",
        "        if node == connect_string and this.is_same(",
        "A node is taken for its own successor, and emptied.",
    ),
    _bug(
        "nodes_at_one_address_are_one",
        "A6",
        "same_node.py",
        "            return bool(self.ids & other.ids)\n        return",
        "            if self.ids & other.ids:\n                return True\n        return",
        "A pod is taken for the one that had its address before.",
    ),
    _bug(
        "storage_port_of_another_process_is_its_own",
        "A6",
        "same_node.py",
        "    if len(process.ids) > 1:\n",
        "    if not process.ids:\n",
        "What is done on an admin port is done to another node.",
    ),
    _bug(
        "one_node_under_two_names_is_two_replicas",
        "A6",
        "same_node.py",
        "        if known != connect_string:\n",
        "        if not known:\n",
        "A quorum of names is taken for a quorum of disks.",
    ),
    _bug(
        "copy_is_removed_under_another_name",
        "A6",
        "storage_admin.py",
        "            probe.distinguish(connect_string, connection)\n",
        "",
        "The copy that proves that a copy is not needed is the one that is removed.",
    ),
    _bug(
        "surplus_of_one_name_is_a_copy_of_the_other",
        "A6",
        "storage_admin.py",
        "    if remove_surplus:\n        await check_distinct(maps, params, tls)\n",
        "",
        "A node loses under one name what it has under the other.",
    ),
    _bug(
        "surplus_of_a_partition_that_zookeeper_never_saw_started",
        "A8",
        "storage_admin.py",
        "        await check_no_later(connection, node, partition_id, session_id)\n    except",
        "        if session_id >= 0:\n            await check_no_later(connection, node, partition_id, session_id)\n    except",
        "ZooKeeper is a copy of before the first session, and the copy that has the data is removed.",
    ),
    _bug(
        "tree_is_made_from_one_node_under_two_names",
        "A8",
        "accept_restored.py",
        "    distinct = await check_distinct(view.nodes, view.store, tls)\n",
        "    distinct = frozenset(view.nodes.names)\n",
        "A node that nobody named has the last records, and another one is counted twice in its place.",
    ),
    _bug(
        "node_that_was_not_compared_speaks",
        "A8",
        "accept_restored.py",
        " for one in statuses if one.error is None and one.node in distinct}\n",
        " for one in statuses if one.error is None}\n",
        "A node under two names, one of which was silent for a moment, is counted twice.",
    ),
    _bug(
        "silent_node_is_nobody_under_another_name",
        "A8",
        "same_node.py",
        "    for (name, one), (node, other) in combinations(found.items(), 2):\n        if one.is_same(other):\n",
        "    for (name, one), (node, other) in combinations(found.items(), 2):\n        if one.ids & other.ids:\n",
        "A lost disk is named twice, and a node that was forgotten goes unnoticed.",
    ),
    _bug(
        "nodes_of_a_rebuild_share_a_port",
        "A8",
        "rebuild_tree.py",
        "        check_entry(maps, node.connect_string, node.admin_port, node.group)\n",
        "",
        "The admin port of one node answers for two.",
    ),
    _bug(
        "two_nodes_share_a_port",
        "A6",
        "nodes.py",
        "        if node != connect_string and own & taken:\n",
        "        if node == connect_string and own & taken:\n",
        "A node is registered with the admin port of another one.",
    ),
    # ---- replacing a node
    _bug(
        "node_that_ends_in_the_middle_is_forgotten_with_the_rest",
        "A8",
        "replace.py",
        "                return kept | dict.fromkeys(partitions[number:], str(error))\n",
        "                return kept\n",
        "Copies that were to be kept are forgotten with their node.",
    ),
    _bug(
        "refusal_is_no_answer",
        "A8",
        "replace.py",
        "            except RefusedError as error:\n                why = str(error)\n",
        "",
        "A node whose disk refuses one removal is not asked for the others.",
    ),
    _bug(
        "node_that_refuses_its_list_is_gone",
        "A8",
        "replace.py",
        "        except RefusedError:\n            raise\n",
        "",
        "A node that is there is forgotten with everything it has.",
    ),
    _bug(
        "plan_without_the_refusals_of_a_run",
        "replace",
        "replace.py",
        "        nodes.check_entry(maps, self._new, self._new_admin.port, group)\n",
        "",
        "A dry run shows a plan that the run refuses.",
    ),
    _bug(
        "copy_of_another_group_takes_the_place",
        "A6",
        "replace.py",
        "        if shared and old_group != new_group and not self._options.drop_group_copy:\n",
        "        if shared and new_group is None and not self._options.drop_group_copy:\n",
        "Partitions lose a replica without a word.",
    ),
    _bug(
        "node_that_is_not_known_was_replaced",
        "replace",
        "replace.py",
        "        self.old_is_known = self._old in maps.partitions\n",
        "",
        "A mistyped name of the old node is reported as replaced.",
    ),
    _tools_bug(
        "assigning_again_waits_for_nothing",
        "wait",
        "cli/zk.py",
        "    _wait(config, held, wait_seconds, False)\n",
        "    _wait(config, sorted({p for has in given.values() for p in has}), wait_seconds, False)\n",
        "A change that is not complete is reported as complete by the second run.",
    ),
)
