"""Planted bugs in what becomes of files below a journal, when they are closed, and in what a file system
refuses."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_journal = bugs_in("services/storage/src/waltz_storage/engine/journal")
_engine = bugs_in("services/storage/src/waltz_storage/engine")

_service = bugs_in("services/storage/src/waltz_storage/service")

OPEN_FILE_BUGS = (
    _service(
        "busy_node_writes_no_files",
        "bounds",
        "disk_pool.py",
        "        self._flush_due = bool(self._on_threads) and not self._making\n",
        "        self._flush_due = False\n",
        "Under load the files follow the journal only when 8 MiB wait.",
    ),
    _service(
        "failed_journal_is_healthy",
        "C3",
        "server.py",
        "        if journal is not None:\n",
        "        if problems and journal is not None:\n",
        "A node without partitions refuses each assignment, and its health does not say why.",
    ),
    _journal(
        "closed_before_its_sync",
        "C7",
        "open_files.py",
        "        return shared.dirty and named and self.journaling and self.failed is None\n",
        "        return False\n",
        "What the kernel could not write is reported to nobody, and its journal file is used again.",
    ),
    _journal(
        "deleted_file_is_synced",
        "bounds",
        "open_files.py",
        "        return shared.dirty and named and self.journaling and self.failed is None\n",
        "        return shared.dirty and self.journaling and self.failed is None\n",
        "A deletion of segments takes a sync of each.",
    ),
    _journal(
        "sync_takes_later_writes_along",
        "C7",
        "shared_file.py",
        "            self.dirty = False  # before the sync: it may not cover what another thread writes meanwhile\n"
        "            below.sync()\n",
        "            below.sync()\n            self.dirty = False\n",
        "What a job wrote during a sync counts as synced.",
    ),
    _journal(
        "failed_close_is_overlooked",
        "C7",
        "open_files.py",
        "                raise\n            self._fail(error)\n",
        "                raise\n",
        "On a file system that reports lost writes at a close nobody hears of them.",
    ),
    _journal(
        "files_wait_for_a_sync_without_bound",
        "bounds",
        "filesystem.py",
        "        if len(self._unsynced) >= 2 * _UNSYNCED_OPEN:\n",
        "        if False:\n",
        "A node whose thread that settles does not keep up runs out of file descriptors.",
    ),
    _journal(
        "holes_of_a_copied_journal",
        "bounds",
        "log.py",
        "    if file.allocated() < min(have, size):\n        have = 0\n",
        "",
        "A commit into a hole ends the journal when the disk is full.",
    ),
    _engine(
        "closed_for_want_of_descriptors",
        "bounds",
        "storage_manager.py",
        "error.errno in (*NO_SPACE, errno.EMFILE, errno.ENFILE):\n",
        "error.errno in NO_SPACE:\n",
        "Partitions for which a start had no descriptor are refused until the next restart.",
    ),
    _engine(
        "failed_sync_is_tried_again_at_the_start",
        "C3",
        "storage_manager.py",
        "error.errno in (*NO_SPACE, errno.EMFILE, errno.ENFILE):\n",
        "error.errno in (*NO_SPACE, errno.EMFILE, errno.ENFILE, errno.ENOMEM):\n",
        "A sync that failed with a lack of memory is made again until it returns.",
    ),
    _engine(
        "refused_modes_end_the_start",
        "compatibility",
        "files.py",
        "            if error.errno not in _NO_CHMOD:\n",
        "            if True:\n",
        "A node does not start on files of release 0.13.2 where the file system has no modes.",
    ),
    _engine(
        "holes_of_the_witness_are_filled",
        "bounds",
        "witness.py",
        '        if raw[first:end].strip(b"\\0"):\n',
        "        if True:\n",
        "On a disk that is full to the last block a node does not start.",
    ),
    _journal(
        "file_kept_open_is_taken_for_the_one_at_its_path",
        "C7",
        "filesystem.py",
        "        return shared if shared.handles or shared.below.is_at(path) else None\n",
        "        return shared\n",
        "What is acknowledged goes into a file that an administrator has replaced meanwhile.",
    ),
    _journal(
        "descriptors_of_closed_files_are_not_given_back",
        "bounds",
        "filesystem.py",
        "            if error.errno not in OUT_OF_RESOURCES or not self._unsynced:\n",
        "            if True:\n",
        "A node at its limit of descriptors refuses what it could open.",
    ),
    _service(
        "node_ends_beside_what_is_written_into_its_files",
        "C7",
        "disk_pool.py",
        "        self._flush_due = bool(self._on_threads) and not self._making\n",
        "        self._flush_due = bool(self._on_threads)\n",
        "On a full disk an orderly end gives up a journal that holds what the files lack.",
    ),
)
