"""Planted bugs in the storage node."""

from __future__ import annotations

from tests.sim.mutants.mutant import Edit, Mutant

_ENGINE = "services/storage/src/waltz_storage/engine"
_SERVICE = "services/storage/src/waltz_storage/service"

STORAGE_MUTANTS = (
    Mutant(
        name="acknowledge_before_sync",
        rule="C1",
        edits=(
            Edit(
                f"{_ENGINE}/segment.py",
                """        try:
            data.sync()
        except OSError as error:
            raise self._sync_failed(error) from error
        offsets = list(accumulate""",
                """        offsets = list(accumulate""",
            ),
        ),
        expected=("node_kept", "acknowledged", "fork"),
        how="A node loses power after it has answered an append: what it said it had is gone.",
        found_at=0,
    ),
    Mutant(
        name="fence_raised_by_set_low_water_mark_only",
        rule="B1",
        edits=(
            Edit(
                f"{_SERVICE}/disk_pool.py",
                "        raised = self._pool.raises_fence(self, request.session_id)\n",
                "        raised = request.kind == 4 and self._pool.raises_fence(self, request.session_id)\n",
            ),
            Edit(
                f"{_SERVICE}/fence.py",
                "        if session_id != current:\n",
                "        if session_id < current:\n",
            ),
        ),
        expected=("fence", "acknowledged", "fork", "failed_committed"),
        how="An old owner appends between the question for the last id and the low-water mark of the new session; "
        "the new session truncates what was acknowledged.",
        guards="that requests which are refused raise it too matters only to peers that continue after a refusal; "
        "ours take nothing from a refused request, so here no question raises it at all",
        found_at=0,
    ),
    Mutant(
        name="fence_not_raised_by_a_refused_request",
        rule="B1",
        edits=(
            Edit(
                f"{_SERVICE}/disk_pool.py",
                "        raised = self._pool.raises_fence(self, request.session_id)\n",
                "        partition = self._pool.manager.partitions.get(self.partition_id)\n"
                "        refused = partition is not None and not partition.info.available\n"
                "        raised = not refused and self._pool.raises_fence(self, request.session_id)\n",
            ),
        ),
        expected=("fence",),
        how="A new session asks a node whose copy an administrator has taken out of service: the question is refused. When the "
        "copy is back, the owner before may still write to it. Our servers do nothing after a refusal that relies on the "
        "fence, so only the node itself can show it.",
    ),
    Mutant(
        name="fence_not_durable",
        rule="B2",
        edits=(
            Edit(
                f"{_ENGINE}/sidecar.py",
                "        self._file.sync()\n        self._fence_counter = counter\n",
                "        self._fence_counter = counter\n",
            ),
            Edit(
                f"{_ENGINE}/partition.py",
                "            self._guarded(self._bear_witness, fence=session_id)\n",
                "",
            ),
        ),
        expected=("node_kept",),
        how="A node loses power after it has answered a new session's question and before anything else syncs the "
        "side file or the witness, which holds the fence too (one of them alone would do). Our servers never use a node again in a session once its connection broke, so only the node "
        "itself can show it.",
        found_at=11,
    ),
    Mutant(
        name="index_trusted_past_the_checkpoint",
        rule="C2",
        edits=(
            Edit(
                f"{_ENGINE}/recovery.py",
                "    for txid in range(_newest_start(last_entry), first_txid - 1",
                "    for txid in range(last_entry, first_txid - 1",
            ),
        ),
        expected=("disk", "replicas", "progress"),
        how="A power cut loses an earlier sector of the index and keeps a later one; the records between are not "
        "looked at, and nobody can read them.",
        found_at=0,
    ),
    Mutant(
        name="torn_length_trusted",
        rule="C2",
        edits=(
            Edit(
                f"{_ENGINE}/scan.py",
                "    return end if crc32(chunk[start : end - 4]) == unpack_u32(chunk, end - 4) else -1\n",
                "    return end\n",
            ),
            Edit(
                f"{_ENGINE}/scan.py",
                "    return end if len(tail) == 4 and unpack_u32(tail) == checksum else -1\n",
                "    return end\n",
            ),
        ),
        expected=("disk", "replicas", "progress"),
        how="A power cut tears the last record inside its data: its head and length are there, its end is not, and it "
        "is taken for a record.",
        profile="power",
        found_at=127,
    ),
    Mutant(
        name="truncates_below_the_low_water_mark_when_opening",
        rule="C2",
        edits=(
            Edit(
                f"{_ENGINE}/partition.py",
                "certain = max(info.local_low_water_mark, synced)",
                "certain = -1",
            ),
        ),
        expected=("node_kept", "acknowledged"),
        how="A bit flips in the last record of a stopped node, below what it knows to be synced: it is cut off as if it "
        "were torn, instead of the partition being refused.",
        found_at=16,
    ),
    Mutant(
        name="directory_not_synced",
        rule="C5",
        edits=(
            Edit(
                f"{_ENGINE}/segment.py",
                "            sync_or_fail(lambda: fs.sync_dir(directory), directory)\n        except OSError",
                "        except OSError",
            ),
        ),
        expected=("node_kept", "disk", "progress"),
        how="A node loses power after a new segment has taken records: the names of its files are gone.",
        found_at=0,
    ),
    Mutant(
        name="sync_tried_again_after_failure",
        rule="C3",
        edits=(
            Edit(
                f"{_ENGINE}/segment.py",
                """        try:
            data.sync()
        except OSError as error:
            raise self._sync_failed(error) from error
        offsets = list(accumulate""",
                """        try:
            data.sync()
        except OSError:
            try:
                data.sync()
            except OSError as error:
                raise self._sync_failed(error) from error
        offsets = list(accumulate""",
            ),
        ),
        expected=("node_kept", "acknowledged", "fork"),
        how="A sync fails once and drops what was pending; the second one has nothing to do and succeeds. The next "
        "power cut shows it.",
        found_at=4,
    ),
    Mutant(
        name="failed_sync_forgotten",
        rule="C3",
        edits=(
            Edit(
                f"{_ENGINE}/segment.py",
                """        try:
            data.sync()
        except OSError as error:
            raise self._sync_failed(error) from error
        offsets = list(accumulate""",
                """        try:
            data.sync()
        except OSError:
            pass
        offsets = list(accumulate""",
            ),
        ),
        expected=("node_kept", "acknowledged", "fork"),
        how="A sync fails, the append is acknowledged, and the node loses power.",
        found_at=4,
    ),
    Mutant(
        name="segments_deleted_oldest_first",
        rule="C4",
        edits=(
            Edit(
                f"{_ENGINE}/partition.py",
                """        while len(self._segments) > 1 and keep + 1 < self._segments[-1].first_txid:
            last = self._segments[-1]
            last.delete()
            self._segments.drop_newest()
""",
                """        gone: list[Segment] = []
        while len(self._segments) > 1 and keep + 1 < self._segments[-1].first_txid:
            gone.append(self._segments.drop_newest())
        for segment in reversed(gone):
            segment.delete()
""",
            ),
            Edit(
                f"{_ENGINE}/segment.py",
                "        for path in (self.index_path, self.data_path):\n            with suppress(FileNotFoundError):  # the attempt before this one took it away\n                self._fs.unlink(path)\n            self._fs.sync_dir(self.directory)\n",
                "        for path in (self.data_path, self.index_path):\n            self._fs.unlink(path)\n",
            ),
        ),
        expected=("out_of_service", "node_kept", "disk", "progress"),
        how="A truncation deletes segments, and the node ends inside it or loses power some time after it: a gap is left, "
        "and the partition does not open.",
        guards="the directory is synced after each deletion, which leaves a moment only",
        profile="disk",
        found_at=16,
    ),
    Mutant(
        name="flags_overwrite_marks",
        rule="B3",
        edits=(
            Edit(
                f"{_ENGINE}/partition.py",
                "        self._set_info(lambda info: info._replace(flags=info.flags | flag if value else info.flags & ~flag))\n",
                "        flags = self._info.flags | flag if value else self._info.flags & ~flag\n"
                "        self._set_info(lambda info: PartitionInfo(-1, -1, -1, flags, info.sequence))\n",
            ),
        ),
        expected=("node_kept", "progress", "acknowledged"),
        how="An administrator sets a flag (available, assigned) of a partition in use: its session and marks are "
        "written back as they were when it was new.",
        found_at=16,
    ),
    Mutant(
        name="record_checksum_not_verified",
        rule="C2",
        edits=(
            Edit(
                f"{_ENGINE}/layout.py",
                "    return end if crc32(raw[offset : end - 4]) == _unpack_u32(raw, end - 4)[0] else -1\n",
                "    return end\n",
            ),
            Edit(
                "services/server/src/waltz_server/store/record_reads.py",
                "        if not verify_record(record):\n",
                "        if not verify_record(record) and not record:\n",
            ),
            Edit(
                "libs/protocol/src/waltz_protocol/frames/blocks.py",
                "        if crc32(view[at:end]) != checksum(data, end)[0]:\n",
                "        if crc32(view[at:end]) != checksum(data, end)[0] and not data:\n",
            ),
        ),
        expected=("fork", "bytes", "replicas"),
        how="A bit flips in a stored record, and the record is read for a feed or copied to another replica.",
        guards="the server checks the data of what it reads once more, and so does the client, which cannot be talked out of "
        "it; so what shows is a changed ReqId or header, which that checksum leaves out",
        profile="disk",
        found_at=57,
    ),
    Mutant(
        name="maximum_moves_before_the_sync",
        rule="C1",
        edits=(
            Edit(
                f"{_ENGINE}/partition.py",
                """                self._append(parts, sizes)
                self.max_txid = expected - 1
""",
                """                self.max_txid = expected - 1
                self._append(parts, sizes)
""",
            ),
        ),
        expected=("node_kept", "acknowledged", "progress"),
        how="A write or sync fails: the node keeps reporting a last id that it has not got.",
        found_at=4,
    ),
    Mutant(
        name="mark_written_before_the_sync",
        rule="C2",
        edits=(
            Edit(
                f"{_ENGINE}/partition.py",
                """                self._append(parts, sizes)
                self.max_txid = expected - 1
                self._note_append(expected - first)
""",
                """                self._write_mark(expected - 1)
                self._append(parts, sizes)
                self.max_txid = expected - 1
""",
            ),
        ),
        expected=("disk", "progress", "node_kept"),
        how="A node loses power inside an append; the mark survives, the records do not, and an honest torn tail is "
        "taken for damage.",
        found_at=1,
    ),
    Mutant(
        name="lost_files_not_missed",
        rule="C6",
        edits=(
            Edit(
                f"{_ENGINE}/partition.py",
                "            check_files(fs, directory, partition_id, expected)\n",
                "            pass\n",
            ),
            Edit(
                f"{_ENGINE}/partition.py",
                "        newest_txid = expected.newest_txid if expected is not None else min(info.session_id, 0)\n",
                "        newest_txid = -1\n",
            ),
        ),
        expected=("node_kept", "acknowledged", "fork", "failed_committed"),
        how="The newest segment of a partition and its side file are gone when a node starts, or all of them: it opens with the "
        "records before, and votes.",
        guards="the names that the witness expects, and the first transaction of the newest segment",
        profile="disk",
        found_at=6,
    ),
    Mutant(
        name="witness_not_told_of_a_new_segment",
        rule="C6",
        edits=(
            Edit(
                f"{_ENGINE}/partition.py",
                "            self._guarded(self._bear_witness)\n        except (DiskWriteError",
                "            self._guarded(lambda: None)\n        except (DiskWriteError",
            ),
        ),
        expected=("node_kept", "acknowledged", "fork", "failed_committed"),
        how="A log rolls and takes records; before anything else is written to the witness, the new segment and the side file "
        "are lost.",
        profile="disk",
        found_at=122,
    ),
    Mutant(
        name="lost_witness_not_missed",
        rule="C6",
        edits=(
            Edit(
                f"{_ENGINE}/storage_manager.py",
                "            manager._miss_witness()\n",
                "            pass\n",
            ),
            Edit(
                f"{_ENGINE}/partition.py",
                "            if self._sidecar.witnessed and info.session_id >= 0 and not self._witness.knows(partition_id):\n",
                "            if self._sidecar.witnessed and info.session_id < -1:\n",
            ),
        ),
        expected=("witness",),
        how="The witness is gone when a node starts: its directory is taken for one of release 0.13.2, in which nobody knows what "
        "is missing.",
        guards="each partition whose side file says that there was a witness",
        profile="disk",
        found_at=29,
    ),
    Mutant(
        name="directory_lock_ignored",
        rule="13.6",
        edits=(
            Edit(
                f"{_ENGINE}/control_file.py",
                "    if not locked:\n",
                "    if not locked and not create:\n",
            ),
        ),
        expected=("directory_shared",),
        how="A volume is mounted twice and a second node started on it.",
        profile="outside",
    ),
    Mutant(
        name="unwritten_sectors_are_cut_whatever_was_synced",
        rule="C2",
        edits=(
            Edit(
                f"{_ENGINE}/recovery.py",
                "    if found.next_txid <= certain:\n",
                "    if found.next_txid <= certain and not unwritten_sector(data, found.end, size, found.next_txid):\n",
            ),
        ),
        expected=("node_kept", "acknowledged", "lost"),
        how="A disk loses a write of which a sync said that it was done, and the node starts again with its mark: it cuts what "
        "it had acknowledged, as if power had failed in the middle of it.",
        profile="outside",
    ),
)
