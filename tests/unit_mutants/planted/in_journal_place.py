"""Planted bugs in where the journal of a node is, and who may have it."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_journal = bugs_in("services/storage/src/waltz_storage/engine/journal")

JOURNAL_PLACE_BUGS = (
    _journal(
        "journal_inside_is_forgotten",
        "C7",
        "directory.py",
        "    if not holds_journal(fs, place, journal_id) and holds_journal(fs, inside, journal_id):\n",
        "    if holds_journal(fs, place, journal_id) and holds_journal(fs, inside, journal_id):\n",
        "A node that was killed never starts again after its journal got a volume of its own.",
    ),
    _journal(
        "any_journal_will_do",
        "C7",
        "log.py",
        "    return header is not None and header.journal_id == journal_id\n",
        "    return header is not None\n",
        "What a released journal in the new place holds is taken for what the directory needs.",
    ),
    _journal(
        "only_a_journal_elsewhere_is_locked",
        "C7",
        "log.py",
        "            _lock(directory, files)\n            if not own:\n",
        "            if not own:\n                _lock(directory, files)\n",
        "Two nodes whose directories lead to one journal write over what the other one has acknowledged.",
    ),
    _journal(
        "journal_of_a_lost_directory_is_overwritten",
        "C7",
        "log.py",
        "        if header is not None and header.epoch > 0:\n",
        "        if header is not None and header.epoch > 64:\n",
        "A data volume that came back empty costs what its journal holds, without a word.",
    ),
)
