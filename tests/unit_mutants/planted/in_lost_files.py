"""Planted bugs in what becomes of files that cannot be looked at, or are missing when a journal is
replayed."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_engine = bugs_in("services/storage/src/waltz_storage/engine")

LOST_FILES_BUGS = (
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
