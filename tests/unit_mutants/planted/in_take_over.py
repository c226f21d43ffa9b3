"""Planted bugs in what makes a take-over short: the order of a storage node's jobs, headers that come with
the fence."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_service = bugs_in("services/storage/src/waltz_storage/service")
_store = bugs_in("services/server/src/waltz_server/store")

TAKE_OVER_BUGS = (
    _service(
        "memory_answers_before_the_fence_is_durable",
        "B2",
        "job_order.py",
        "    return partition is not None and fence <= partition.durable_fence and not partition.unfinished\n",
        "    return partition is not None and not partition.unfinished\n",
        "The question that raises the fence is answered while the fence is in memory only.",
    ),
    _service(
        "openings_stop_all_appends",
        "D7",
        "job_order.py",
        "            if self._first and (self._in_a_row < FIRST_IN_A_ROW or not self._others):\n",
        "            if self._first:\n",
        "A server that opens sessions again and again keeps all other partitions from the disk.",
    ),
    _service(
        "memory_answers_appends_with_records",
        "C1",
        "job_order.py",
        "            if item.batch is None or item.batch.record_count:\n",
        "            if item.batch is None:\n",
        "Every append is written and synced on the loop, which stands still meanwhile.",
    ),
    _store(
        "headers_outlive_a_truncation",
        "A2",
        "replica_recovery.py",
        "                self._headers = {}\n                try:\n",
        "                try:\n",
        "A record that was cut is compared in place of the one that was copied there since: a fork is kept.",
    ),
    _store(
        "headers_outlive_their_connection",
        "A2",
        "replica_recovery.py",
        "        if self.link is None or self.link.closed:\n            return None\n        found =",
        "        found =",
        "A node that went away is compared with by what it held before.",
    ),
)
