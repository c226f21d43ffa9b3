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
        "                self.missed[path] = None\n            else:\n",
        "                pass\n            else:\n",
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
        "            lacking = _note_lacking(fs, directory, control, found.plain, replay.missed)\n",
        "            release_journal(fs, place, found.journal_id, found.files)\n            lacking = _note_lacking(fs, directory, control, found.plain, replay.missed)\n",
        "A failed sync in between leaves a directory whose journal is gone and whose files lack what it held.",
    ),
    _engine(
        "journal_released_without_a_word_in_the_header",
        "C7",
        "journal/directory.py",
        "        write_releasing(control, found)  # also again: a failed sync may have left it in memory only\n",
        "",
        "What is left of a journal after a kill is replayed over the word that a copy lacks records.",
    ),
    _engine(
        "word_of_the_release_is_not_made_durable_again",
        "C7",
        "journal/directory.py",
        "        write_releasing(control, found)  # also again: a failed sync may have left it in memory only\n",
        "        if not found.releasing:\n            write_releasing(control, found)\n",
        "A failed sync, then a loss of power: a released journal is needed again.",
    ),
    _engine(
        "released_file_counts_as_one_without_changes",
        "C7",
        "journal/log.py",
        "        if header.epoch < 0:\n",
        "        if header.epoch < -1:\n",
        "An older copy of a directory is opened with a journal that was released for another one.",
    ),
    _engine(
        "released_file_looks_as_one_that_was_not_used",
        "C7",
        "journal/log.py",
        "FileHeader(journal_id, RELEASED, number)",
        "FileHeader(journal_id, 0, number)",
        "An older copy of a directory is opened with a journal that was released for another one.",
    ),
    _engine(
        "rest_of_a_released_journal_is_replayed",
        "C7",
        "journal/directory.py",
        "        if not found.releasing:\n            make_durable",
        "        if True:\n            make_durable",
        "A complete directory is refused because its journal was released.",
    ),
    _engine(
        "directory_of_a_journal_that_is_released_shows_its_key",
        "C7",
        "journal/directory.py",
        "    raw = bytearray(_hidden(header, version))\n",
        "    raw = bytearray(header._replace(version=version).to_bytes())\n",
        "0.13.2 opens a directory whose journal is not released yet.",
    ),
)
