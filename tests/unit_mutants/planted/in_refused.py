"""Planted bugs in what is said of a copy that a server refuses: which step would destroy the last witness."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("libs/admin/src/waltz_admin")

REFUSED_BUGS = (
    _bug(
        "copy_that_proves_a_restored_zookeeper_is_to_be_deleted",
        "A8",
        "findings/refused.py",
        "    if is_evidence(reason):\n",
        "    if is_evidence(reason) and not ids:\n",
        "The only copy that knows of acknowledged records is called a fork, with the command that deletes it.",
    ),
    _bug(
        "refused_copy_is_to_be_deleted_while_nobody_has_decided",
        "A6",
        "findings/rules.py",
        "waits or (refused and partition.closed),",
        "waits,",
        "Where too many are refused, the step for each of them is to delete it.",
    ),
    _bug(
        "refusal_of_a_server_without_the_partition_is_believed",
        "A6",
        "verify.py",
        "        if owners.get((one.partition, one.node)) == report.server_id\n",
        "",
        "A server that has lost the partition says what was so in an earlier session.",
    ),
)
