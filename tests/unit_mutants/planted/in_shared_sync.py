"""Planted bugs in the sync that several disk threads share, and in what a segment takes for synced."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_engine = bugs_in("services/storage/src/waltz_storage/engine")

SHARED_SYNC_BUGS = (
    _engine(
        "failed_sync_concerns_those_it_covered",
        "C3",
        "shared_sync.py",
        "(one for one, state in states.items() if state is not _State.DURABLE)",
        "covered",
        "The kernel dropped what another thread had just written, and the next sync takes it for durable.",
    ),
    _engine(
        "sync_covers_who_is_still_writing",
        "C1",
        "shared_sync.py",
        "if state is _State.WAITING]",
        "if state in (_State.WAITING, _State.WRITING)]",
        "A thread whose write came after the sync had begun is answered as if it was covered.",
    ),
    _engine(
        "waiting_for_a_sync_that_has_begun",
        "C1",
        "shared_sync.py",
        "                if states[number] is _State.DURABLE:\n",
        "                if states[number] is not _State.FAILED and self._next > number + 1:\n",
        "Whoever wrote while a sync was under way believes that it was for him.",
    ),
    _engine(
        "appended_index_counts_as_synced",
        "C1",
        "segment.py",
        "        self._data_synced = self._index_synced = False\n        try:\n",
        "        self._data_synced = False\n        try:\n",
        "A low-water mark calls an index certain that is not on the disk.",
    ),
    _engine(
        "cut_segment_stays_after_a_failed_look",
        "C4",
        "segment.py",
        "            with suppress(FileNotFoundError):  # the attempt before this one took it away\n                self._fs.unlink(path)\n",
        "            with suppress(OSError):\n                if self._fs.exists(path):\n                    self._fs.unlink(path)\n",
        "Records of a segment that was cut off are back after a restart.",
    ),
    _engine(
        "failed_look_is_an_answer",
        "C6",
        "files.py",
        "            os.lstat(path)\n        except (FileNotFoundError, NotADirectoryError):\n",
        "            os.lstat(path)\n        except OSError:\n",
        "A file that cannot be looked at counts as deleted.",
    ),
    _engine(
        "replay_forgets_what_it_left_out",
        "C7",
        "journal/replay.py",
        "                    self.missed[path] = None\n                    return None\n",
        "                    return None\n",
        "A file that was away during a replay is back without records that were acknowledged.",
    ),
    _engine(
        "replay_forgets_a_deletion_in_a_lost_directory",
        "C4",
        "journal/replay.py",
        "            self.missed[posixpath.dirname(path)] = None\n",
        "            pass\n",
        "A directory that was away during a replay brings records back that were cut.",
    ),
    _engine(
        "journal_released_without_a_word_of_lost_files",
        "C7",
        "journal/directory.py",
        "                witness.note_lacking(partition_id, info)\n",
        "",
        "A copy that lacks acknowledged records votes once its directory is back.",
    ),
    _engine(
        "journal_released_before_the_word_of_lost_files",
        "C7",
        "journal/directory.py",
        "        lacking = _note_lacking(fs, directory, control, found.plain, replay.missed)\n        release_journal(fs, place, found.journal_id, found.files)\n",
        "        release_journal(fs, place, found.journal_id, found.files)\n        lacking = _note_lacking(fs, directory, control, found.plain, replay.missed)\n",
        "A failed sync in between leaves a directory whose journal is gone and whose files lack what it held.",
    ),
)
