"""Planted bugs in what follows an error that nobody foresaw."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("services/storage/src/waltz_storage")

UNFORESEEN_ERROR_BUGS = (
    _bug(
        "node_goes_on_after_half_a_step",
        "C1",
        "service/vital.py",
        "            self.on_defect(error)\n",
        "",
        "A partition that is reported healthy answers nobody.",
    ),
    _bug(
        "error_of_a_queue_does_not_end_the_process",
        "C1",
        "__main__.py",
        "            on_defect=end_at_once,\n",
        "",
        "The same, in the process.",
    ),
)
