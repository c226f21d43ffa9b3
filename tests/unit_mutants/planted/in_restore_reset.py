"""Planted bugs in the repairs of a stopped node: copies that are given up, and a fence that is lowered."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_engine = bugs_in("services/storage/src/waltz_storage/engine")
_cli = bugs_in("tools/src/waltz_tools/cli")

RESTORE_RESET_BUGS = (
    # ---- the way back after a kill
    _engine(
        "settling_opens_no_copy",
        "C5",
        "settling.py",
        "        for open_next in openings:\n",
        "        for open_next in openings[:0]:\n",
        "What a killed node leaves of a segment stays, and release 0.13.2 does not start on the directory.",
    ),
    _cli(
        "damaged_copies_are_not_named_by_settle",
        "C6",
        "disk.py",
        "    problems = [reason for partition_id, reason in found.damaged.items() if partition_id not in found.lacking]\n",
        "    problems = []\n",
        "The way back continues with a copy on which release 0.13.2 does not start.",
    ),
    # ---- copies that cannot be trusted
    _engine(
        "part_of_what_is_lost_is_reset",
        "A5",
        "restore_reset.py",
        "            _refuse_a_part(disk, directory, control.lost, assigned)\n        for",
        "            pass\n        for",
        "Partitions that were not named vote with logs whose newest records were in the lost journal.",
    ),
    _engine(
        "part_is_reset_where_the_witness_is_missing",
        "C6",
        "restore_reset.py",
        "    elif is_missed(fs, directory, assigned):\n",
        "    elif False:\n",
        "The reset of one partition makes the witness anew, and lost files of the others are not missed.",
    ),
    _engine(
        "part_is_reset_after_a_reset_that_did_not_end",
        "A5",
        "control_file.py",
        "            control.lost = lost\n",
        "            control.lost = None if lost is None or lost.resetting else lost\n",
        "What kept the node from starting is forgotten with the first reset that was interrupted.",
    ),
    _engine(
        "journal_is_given_up_before_the_reset",
        "C7",
        "restore_reset.py",
        "        for partition_id in wanted:\n            path",
        "        control.end_reset(disk, directory, journal_directory)\n        for partition_id in wanted:\n            path",
        "A reset that is killed leaves copies that vote with logs that lack acknowledged records.",
    ),
    _engine(
        "directory_is_not_refused_while_it_is_reset",
        "A5",
        "control_file.py",
        "            write_fully(self._file, resetting(self.header, self.lost), 0)\n            self._file.sync()\n",
        "            pass\n",
        "The first copy that is reset makes the witness anew; after a kill the node starts with the others.",
    ),
    _engine(
        "mark_of_a_reset_is_not_synced",
        "A5",
        "control_file.py",
        "            write_fully(self._file, resetting(self.header, self.lost), 0)\n            self._file.sync()\n",
        "            write_fully(self._file, resetting(self.header, self.lost), 0)\n",
        "After a power loss the witness is there again, and the header says nothing of the reset.",
    ),
    _engine(
        "journal_that_comes_back_ends_a_reset",
        "A5",
        "control_file.py",
        "        if self.lost is None or not self.lost.resetting:\n",
        "        if self.lost is None:\n",
        "A reset that was killed half-way is forgotten, and a node opens copies with and without a session.",
    ),
    _engine(
        "reset_forgets_the_journal_that_it_gives_up",
        "C7",
        "journal/directory.py",
        "    if lost is not None:\n        _JOURNAL.pack",
        "    if lost is None:\n        _JOURNAL.pack",
        "A journal that was given up stays taken: no node may use its directory again.",
    ),
    _engine(
        "directory_that_is_being_reset_shows_its_key",
        "A5",
        "journal/directory.py",
        "    raw = bytearray(_hidden(header, RESETTING_VERSION))\n",
        "    raw = bytearray(header._replace(version=RESETTING_VERSION).to_bytes())\n",
        "0.13.2 opens a directory with copies that are not reset yet.",
    ),
    _engine(
        "dry_run_of_a_reset_does_not_read_the_journal",
        "A5",
        "journal/directory.py",
        "        for _ in read_journal(fs, place, found.journal_id, found.files):\n            pass\n",
        "        _ = read_journal(fs, place, found.journal_id, found.files)\n",
        "A dry run promises to reset a part, and the command refuses it.",
    ),
    _engine(
        "dry_run_of_a_reset_leaves_out_what_does_not_exist",
        "A5",
        "restore_reset.py",
        "        if not 0 <= partition_id < len(entries):\n",
        "        if partition_id >= len(entries):\n            continue\n        if partition_id < 0:\n",
        "Only the command itself says that a partition does not exist.",
    ),
    # ---- a fence that is lowered
    _engine(
        "fence_of_another_cluster_is_lowered",
        "B4",
        "fence_repair.py",
        "            control.check_cluster(directory, *cluster)\n",
        "",
        "Sessions that were given out get in again, by the word of a cluster that does not know them.",
    ),
    _cli(
        "fence_is_lowered_by_what_was_read_before_the_question",
        "B4",
        "storage_repairs.py",
        "            to[number] = max(to[number], await lowest_free_session(c.store, c.root, number, tls=c.tls))\n",
        "",
        "A session that was given out while the question was open is not fenced off.",
    ),
    _engine(
        "dry_run_replays_the_journal",
        "tools",
        "fence_repair.py",
        "    if not replay:\n",
        "    if False:\n",
        "A dry run changes the files of a killed node.",
    ),
    _cli(
        "journal_elsewhere_is_not_looked_for",
        "tools",
        "storage_repairs.py",
        "stopped_node.fence_of(directory, p, params, journal, replay=not dry_run)",
        "stopped_node.fence_of(directory, p, params, None, replay=not dry_run)",
        "A command whose answer was read with the journal ends without it.",
    ),
    # ---- what is read
    _engine(
        "anything_is_taken_for_a_file",
        "tools",
        "files.py",
        "            if not stat.S_ISREG(facts.st_mode):\n",
        "            if stat.S_ISLNK(facts.st_mode):\n",
        "An error of a named pipe or a directory does not say which one it is.",
    ),
)
