"""Planted bugs in what a storage node writes into its files some time after an append."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_engine = bugs_in("services/storage/src/waltz_storage/engine")
_journal = bugs_in("services/storage/src/waltz_storage/engine/journal")
_service = bugs_in("services/storage/src/waltz_storage/service")

WRITE_BEHIND_BUGS = (
    _engine(
        "checkpoint_waits_in_memory",
        "C7",
        "segment.py",
        "        if index_later and (next_txid - 1) % layout.CHECKPOINT_INTERVAL >= len(offsets):\n",
        "        if index_later:\n",
        "Release 0.13.2 looks for the end of the log from an entry that a power loss took away.",
    ),
    _engine(
        "checkpoint_at_the_end_of_an_append_waits",
        "C7",
        "segment.py",
        "(next_txid - 1) % layout.CHECKPOINT_INTERVAL >= len(offsets):\n",
        "next_txid % layout.CHECKPOINT_INTERVAL >= len(offsets):\n",
        "The same for an append that begins with a checkpoint.",
    ),
    _engine(
        "only_new_entries_are_written",
        "reads",
        "segment.py",
        "                self._write_index(index, self._unindexed + offsets)\n",
        "                self._write_index(index, offsets)\n",
        "An index entry points at the record of another transaction.",
    ),
    _engine(
        "cut_leaves_room_for_entries_that_wait",
        "reads",
        "segment.py",
        "        index.truncate(self._index_offset(min(next_txid, self._index_end)))\n",
        "        index.truncate(self._index_offset(next_txid))\n",
        "The index has zeros where entries follow that were not written.",
    ),
    _engine(
        "cut_forgets_entries_that_wait",
        "reads",
        "segment.py",
        "        self.write_index()\n        offset = self._end_before(next_txid)\n",
        "        offset = self._end_before(next_txid)\n",
        "After a truncation entries of records that are gone are written for those in their place.",
    ),
    _engine(
        "sync_leaves_entries_in_memory",
        "compatibility",
        "segment.py",
        "        self.write_index()\n        if self._index_synced and self._data_synced:\n",
        "        if self._index_synced and self._data_synced:\n",
        "After an orderly end, or in a full segment, the index is short.",
    ),
    _engine(
        "closed_partition_has_an_older_mark",
        "C5",
        "partition.py",
        "                if self._mark_waits:\n                    self._note_mark()\n                self._guarded(self._sidecar.sync)\n",
        "                self._guarded(self._sidecar.sync)\n",
        "Damage of records that were synced is taken for a torn end after an orderly stop.",
    ),
    _engine(
        "mark_of_a_partition_that_is_given_up",
        "C5",
        "partition.py",
        "        self._mark_waits = False\n        self._guarded(self._sidecar.write_mark",
        "        self._guarded(self._sidecar.write_mark",
        "A later life of the copy takes the mark of the one before for its own.",
    ),
    _engine(
        "given_up_partition_has_a_short_index",
        "compatibility",
        "partition.py",
        "        self._guarded(self._segments[-1].write_index)\n        self._guarded(self._bear_witness, fence=fence)\n",
        "        self._guarded(self._bear_witness, fence=fence)\n",
        "Release 0.13.2 finds files whose index is short.",
    ),
    _engine(
        "waiting_entries_take_no_space",
        "bounds",
        "journal/filesystem.py",
        "        self._later[write] = self._later.get(write, 0) + size_bytes\n        self._pending_bytes += size_bytes\n",
        "        self._later[write] = self._later.get(write, 0) + size_bytes\n",
        "A full disk has no room for the index of what was acknowledged.",
    ),
    _engine(
        "deleted_segment_has_entries_that_wait",
        "C4",
        "segment.py",
        "        self.close()\n        self._unindexed.clear()\n",
        "        self.close()\n",
        "The journal writes them while the segment is being deleted, and the partition goes out of service.",
    ),
    _engine(
        "unforeseen_error_behind_a_commit",
        "C1",
        "journal/filesystem.py",
        "            except Exception as error:\n                self._fail(error)\n                return False\n",
        "            except OSError as error:\n                self._fail(error)\n                return False\n",
        "A commit that is durable counts as failed, and its ids are given out again.",
    ),
    _engine(
        "nothing_is_left_to_be_made_for_ever",
        "bounds",
        "journal/filesystem.py",
        "            self._later.clear()\n",
        "",
        "After a failed commit a disk thread looks again and again for what it has to write.",
    ),
    _engine(
        "rest_of_an_append_before_it_is_in_the_journal",
        "C7",
        "journal/filesystem.py",
        "            self._log_in_pieces(shared, journal)\n",
        "            for offset, raw in shared.take_unsynced().items():\n"
        "                for start in range(0, len(raw), journal.max_write_bytes):\n"
        "                    piece = raw[start : start + journal.max_write_bytes]\n"
        "                    journal.write(shared.relative, offset + start, piece)\n"
        "                    if journal.buffered_bytes >= journal.max_buffered_bytes:\n"
        "                        self._commit_now()\n",
        "After a power loss an append that nobody acknowledged is taken for damage.",
    ),
    _service(
        "unforeseen_error_of_a_commit_stops_nothing",
        "C1",
        "disk_pool.py",
        "                self._stop_partitions(partition_ids, str(error))\n",
        "",
        "Ids that are in the journal are given out again, and the copies lie behind each other.",
    ),
    # ---- what waits in the journal when a file is cut, the disk is full, or the journal has failed
    _journal(
        "cut_lengthens_the_file_below",
        "tools",
        "shared_file.py",
        "        if self.below is not None and (self.end_of_pending() < size or self.below.size() > size):\n",
        "        if self.below is not None:\n",
        "Tools find zeros in place of acknowledged records that wait in the journal, and report damage.",
    ),
    _journal(
        "cut_leaves_a_file_that_is_too_short",
        "C7",
        "shared_file.py",
        "(self.end_of_pending() < size or self.below.size() > size):\n",
        "self.below.size() > size:\n",
        "A file has another size than after a replay, where nothing that waits leads up to the cut.",
    ),
    _engine(
        "held_node_is_available",
        "tools",
        "free_space.py",
        "        return self.held or self.full\n",
        "        return self.full\n",
        "A node that refuses every append until there is space says that it takes them.",
    ),
    _journal(
        "failed_journal_keeps_its_files_open",
        "tools",
        "open_files.py",
        "            if shared.pending and self.journaling:\n",
        "            if shared.pending:\n",
        "The directory of a node that was closed stays locked for as long as its process lives.",
    ),
    # ---- what is shown while a commit is on its way
    _engine(
        "what_runs_is_public",
        "C7",
        "partition.py",
        "        return self._shown() if self._write_later is None else self._public\n",
        "        return self._shown()\n",
        "Tools and metrics show transactions, sessions and fences that a power loss takes back.",
    ),
    _engine(
        "public_before_the_commit",
        "C7",
        "partition.py",
        "        self._public: Shown | None = None\n",
        "        self._public: Shown | None = Shown(-1, -1, info)\n",
        "A partition whose assignment is not durable is reported as one of the node.",
    ),
    _engine(
        "commit_of_a_batch_publishes_nothing",
        "tools",
        "storage_manager.py",
        "        for partition_id in list(self.partitions) if partition_ids is None else partition_ids:\n",
        "        for partition_id in list(self.partitions) if partition_ids is None else ():\n",
        "Reports and metrics of a node with a journal show what it had at its start.",
    ),
    _engine(
        "next_commit_publishes_what_a_failed_one_hid",
        "tools",
        "partition.py",
        "        if self._write_later is not None and self._fence_limit is None:\n",
        "        if self._write_later is not None:\n",
        "An assignment that a failed sync took back is reported after the next request.",
    ),
)
