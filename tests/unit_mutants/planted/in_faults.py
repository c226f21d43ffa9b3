"""Planted bugs in what is said of a partition that its server does not open: whose word counts, and which
step would destroy what is left."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_admin = bugs_in("libs/admin/src/waltz_admin")
_server = bugs_in("services/server/src/waltz_server")

FAULT_BUGS = (
    _admin(
        "two_histories_are_taken_for_an_older_zookeeper",
        "A8",
        "findings/fault.py",
        "    if any(words in reason for words in _TWO_HISTORIES):\n",
        "    if any(words in reason for words in _TWO_HISTORIES) and not is_evidence(reason):\n",
        "Where a disk was put back the step is to make its copy the one that decides.",
    ),
    _admin(
        "server_that_alone_knows_what_is_lost_may_be_restarted",
        "A8",
        "findings/fault.py",
        '    if "this server" in reason:\n',
        "    if False:\n",
        "The next server opens the partition without what was acknowledged, and cuts the last copy of it.",
    ),
    _admin(
        "fault_is_said_to_end_when_nodes_come_back",
        "A8",
        "findings/rules.py",
        "    if partition.fault:\n",
        "    if partition.fault and not is_short(partition.replicas):\n",
        "Whoever brings the nodes back waits for a partition that nothing opens.",
    ),
    _admin(
        "metadata_that_are_lost_are_found_when_the_partition_has_closed",
        "A2",
        "findings/fault.py",
        "if one.metadata_lost and not one.closed]\n",
        "if one.metadata_lost and one.closed]\n",
        "Whoever restarts the server that has it open closes it.",
    ),
    _admin(
        "partition_without_its_metadata_waits_for_its_first_session",
        "A2",
        "findings/rules.py",
        "    if partition.metadata_lost:\n",
        "    if False:\n",
        "Whoever starts a server for that believes that nothing was lost.",
    ),
    _admin(
        "word_of_a_server_without_the_partition_is_believed",
        "A6",
        "verify.py",
        "        if closed.get(one.partition) == report.server_id\n",
        "",
        "A server that has lost the partition says why it was not open then.",
    ),
    _admin(
        "observer_asks_a_server_without_reports_each_time",
        "A6",
        "kept_reports.py",
        "        self._silent |= {one.server_id: now + ASK_AGAIN_SECONDS for one in found if one.silent}\n",
        "",
        "A server of 0.13.2 ends a connection and writes into its log every two seconds.",
    ),
    _server(
        "faults_are_cut_off_a_long_report",
        "A8",
        "report.py",
        '    rows.sort(key=lambda row: (row["state"] != StoreState.FAULT.value, row["partition"]))\n',
        "",
        "Among many partitions that recover the one that needs a person is not listed.",
    ),
)
