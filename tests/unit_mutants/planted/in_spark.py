"""Planted bugs in the Spark source and sink: which rows are in the log, which are read, and where a batch
started."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_source = bugs_in("spark-on-k8s/src/waltz_spark")
_sink = bugs_in("spark-on-k8s/src/waltz_spark/sink")

SPARK_BUGS = (
    # ---- how far a trigger goes
    _source(
        "silent_partition_is_left_out_of_available_now",
        "once",
        "stream.py",
        "            ends.setdefault(partition, max(promised, start_id))\n",
        "            ends.setdefault(partition, start_id)\n",
        "A query with availableNow ends successfully without the transactions of a partition that moved.",
    ),
    _source(
        "silent_partition_moves_back_to_the_target",
        "once",
        "stream.py",
        "            ends.setdefault(partition, max(promised, start_id))\n",
        "            ends.setdefault(partition, promised)\n",
        "A partition that was read beyond the target and is silent is read again from the target on.",
    ),
    _source(
        "turns_begin_with_the_first_partition",
        "ends",
        "admission.py",
        "        p = ring[(turn + i) % len(ring)]\n",
        "        p = ring[i]\n",
        "With a small limit the last partitions are never read next to a lasting backlog in the first ones.",
    ),
    # ---- a batch that is planned again
    _source(
        "repeated_batch_is_read_from_another_cluster",
        "once",
        "stream.py",
        "        if last.cluster != key:\n",
        "        if False:\n",
        "Rows of another cluster are handed out for a batch that was not committed.",
    ),
    _source(
        "task_reads_whatever_cluster_is_at_the_address",
        "once",
        "reading.py",
        "        if here != partition.cluster_key:\n",
        "        if False:\n",
        "A task reads the rows of another cluster, which the address of ZooKeeper has passed to.",
    ),
    _source(
        "first_batch_begins_where_the_options_say",
        "once",
        "stream.py",
        "        if last.began is not None and first == self._initial:\n",
        "        if False:\n",
        "A first batch that was not committed is skipped when startingTransactions has changed, or is latest.",
    ),
    _source(
        "every_batch_that_ends_with_the_first_begins_with_it",
        "once",
        "stream.py",
        "        if last.began is not None and first == self._initial:\n",
        "        if last.began is not None:\n",
        "A batch without new data has the rows of the first one again.",
    ),
    _source(
        "repeated_batch_is_not_compared_with_the_log",
        "ends",
        "stream.py",
        "        if beyond(stops, seen):\n",
        "        if False:\n",
        "With failOnDataLoss = false a query on a restored log fails again and again.",
    ),
    # ---- rows that the log cannot distinguish
    _sink(
        "row_with_locks_after_an_equal_one",
        "once",
        "attempt.py",
        "        if print_ in offered and (has_view or offered[print_]):\n",
        "        if print_ in offered and offered[print_]:\n",
        "A copy of the row without locks is taken for the one with locks, which is written once more.",
    ),
    _sink(
        "equal_row_after_one_with_locks",
        "once",
        "attempt.py",
        "        if print_ in offered and (has_view or offered[print_]):\n",
        "        if print_ in offered and has_view:\n",
        "The copy that the row without locks left is taken for the one with locks, which is left out.",
    ),
    _sink(
        "only_rows_of_one_group_are_compared",
        "once",
        "attempt.py",
        "    offered = dict(state.offered)\n",
        "    offered: dict[bytes, bool] = {}\n",
        "Two equal rows with locks that come in two Arrow batches are confused when the task is repeated.",
    ),
    _sink(
        "frames_are_taken_for_ones_without_views",
        "once",
        "task_writer.py",
        "        self._has_views = has_views\n",
        "        self._has_views = False\n",
        "Rows with locks are not compared.",
    ),
    # ---- views that the log does not have
    _sink(
        "view_of_no_transaction_is_cut_to_the_claim",
        "once",
        "attempt.py",
        "        if row.as_of is not None and row.as_of >= claim:\n",
        "        if False:\n",
        "A row whose as_of is beyond the log is committed over locks that others have taken.",
    ),
    _sink(
        "view_of_a_later_row_is_compared_with_an_old_claim",
        "once",
        "attempt.py",
        "        return replace(state, view=None)\n    return state\n",
        "        return state\n    return state\n",
        "The same for the later rows of a task.",
    ),
    # ---- waits
    _sink(
        "log_that_ends_too_early_is_asked_forever",
        "ends",
        "task_writer.py",
        "                if loop.time() >= deadline:\n",
        "                if False:\n",
        "A task on a restored log never ends.",
    ),
    # ---- where a batch started
    _sink(
        "notes_are_kept_where_the_checkpoint_is_not",
        "once",
        "writers.py",
        "            if options.in_checkpoint and not folder.has_sibling(CHECKPOINT_FILE):\n",
        "            if False:\n",
        "A driver that starts on another machine finds no notes, and writes a batch again.",
    ),
    _sink(
        "notes_of_another_cluster_are_believed",
        "once",
        "batch_starts.py",
        "        if cluster != owner.cluster:\n",
        "        if False:\n",
        "A write that is complete in one cluster succeeds in another one, and writes nothing.",
    ),
    _sink(
        "notes_under_another_claim_header_are_believed",
        "once",
        "batch_starts.py",
        "        if header != owner.claim_header:\n",
        "        if False:\n",
        "Claims of earlier attempts are not found, and a repeated batch is written again.",
    ),
    _sink(
        "batch_without_a_note_starts_where_the_driver_did",
        "once",
        "batch_starts.py",
        "        return self.first if batch == 0 else {}\n",
        "        return self.first\n",
        "A batch whose notes are lost is written again.",
    ),
    _source(
        "writes_share_the_notes_of_a_place_that_is_cut_off",
        "once",
        "folder.py",
        "            _check_uri(location)\n",
        "            pass\n",
        "Two writes whose stateLocation differs behind a # go by the notes of one another.",
    ),
)
