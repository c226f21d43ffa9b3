"""Planted bugs in what a storage directory knows of its own files, and in the session fence."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_engine = bugs_in("services/storage/src/waltz_storage/engine")
_service = bugs_in("services/storage/src/waltz_storage/service")

WITNESS_BUGS = (
    # ---- the witness
    _engine(
        "witness_overwrites_the_slot_that_counts",
        "C6",
        "witness.py",
        "            place = counting if slots[counting] is None else 1 - counting\n",
        "            place = counting\n",
        "A torn write of the witness takes the facts along that belong to the control entry on the disk.",
    ),
    _engine(
        "newest_slot_counts_whatever_the_entry",
        "C6",
        "witness.py",
        "(slot.facts.speak_of(info), slot.counter)",
        "(True, slot.counter)",
        "After a crash between witness and control file nobody knows which files the entry needs.",
    ),
    _engine(
        "witness_carried_to_the_old_entry",
        "C6",
        "witness.py",
        "(session_id=changed.session_id, sequence=changed.sequence)",
        "(session_id=changed.session_id)",
        "The next state of the control entry has no facts: lost files go unnoticed.",
    ),
    _engine(
        "witness_not_written_again",
        "C3",
        "witness.py",
        "                write_fully(file, raw[first:end], start + first)\n",
        "                pass\n",
        "Facts that a failed sync left in memory are believed after a restart and lost with the power.",
    ),
    _engine(
        "witness_name_not_synced",
        "C6",
        "witness.py",
        "                self._fs.sync_dir(self._directory)\n                self._name_durable = True\n",
        "                self._name_durable = True\n",
        "A power loss takes the first witness away.",
    ),
    _engine(
        "witness_not_synced",
        "B2",
        "witness.py",
        "        self._made().sync()\n",
        "        self._made()\n",
        "A power loss takes back what the witness was written for.",
    ),
    _engine(
        "fence_of_the_older_slot",
        "B2",
        "witness.py",
        "        return max((slot.facts.fence for slot",
        "        return min((slot.facts.fence for slot",
        "The fence in the witness is the one before the last.",
    ),
    _engine(
        "fence_lowered_in_one_slot",
        "B4",
        "witness.py",
        "        for _ in range(2):\n            slots = self._slots",
        "        for _ in range(1):\n            slots = self._slots",
        "A fence that was lowered is back with the other slot.",
    ),
    _engine(
        "region_of_another_partition_believed",
        "C6",
        "witness.py",
        "    if magic != _MAGIC or owner != partition_id or",
        "    if magic != _MAGIC or",
        "A misplaced write makes the facts of one partition those of another.",
    ),
    _engine(
        "lost_files_forgotten_when_a_copy_is_given_up",
        "C6",
        "witness.py",
        "        elif facts is None or _missing(self._fs, directory, facts):\n",
        "        elif facts is None:\n",
        "A copy that had lost files is complete again once somebody puts files of that name there.",
    ),
    _engine(
        "files_that_were_cut_short_are_there",
        "C6",
        "witness.py",
        "        if max(file_size(fs, join(directory, name)) for name in names) < size\n",
        "        if max(file_size(fs, join(directory, name)) for name in names) < 0\n",
        "A side file or segment that was emptied counts as present.",
    ),
    # ---- the fence
    _service(
        "fence_out_of_reach_is_raised",
        "B4",
        "fence.py",
        "        if session_id <= self.session_id or out_of_reach(session_id, persisted_session_id):\n",
        "        if session_id <= self.session_id:\n",
        "One request with the largest number closes the partition to everybody.",
    ),
    _service(
        "fence_falls_when_the_partition_opens",
        "B1",
        "fence.py",
        "        self.session_id = max(self.session_id, session_id)\n",
        "        self.session_id = session_id\n",
        "A session that was fenced off before the partition was opened is taken again.",
    ),
    _service(
        "durable_fence_is_not_asked",
        "B2",
        "fence.py",
        "        current = max(self.session_id, durable_session_id)\n",
        "        current = self.session_id\n",
        "A partition that was assigned a moment ago takes requests of a session that its disk has locked out.",
    ),
    _service(
        "later_session_need_not_arrive",
        "B1",
        "fence.py",
        "        if session_id != current:\n",
        "        if session_id < current:\n",
        "A session runs on a node whose fence it has not raised.",
    ),
    _service(
        "offline_recovery_on_a_copy_in_service",
        "A5",
        "fence.py",
        '            if available:\n                return "the',
        '            if available is None:\n                return "the',
        "Records are written past the servers to a copy that they use.",
    ),
    _service(
        "offline_recovery_in_any_session",
        "A5",
        "fence.py",
        "            if session_id != persisted_session_id:\n",
        "            if session_id < persisted_session_id:\n",
        "A copy past the servers continues though the copy has completed another session meanwhile.",
    ),
)
