"""All checkers over one run."""

from __future__ import annotations

from collections import Counter

from tests.sim.checkers.applications import check_applications
from tests.sim.checkers.databases import check_databases
from tests.sim.checkers.history import History, Truth
from tests.sim.checkers.linearizable import check_linearizable
from tests.sim.checkers.locks import check_conflicts, check_locks, check_views
from tests.sim.checkers.log import check_appends, check_book, check_dense
from tests.sim.checkers.outcomes import check_marks, check_outcomes, figures
from tests.sim.checkers.progress import check_progress
from tests.sim.checkers.replicas import check_failed, check_replicas
from tests.sim.checkers.violation import Violation

PROGRESS_BOUND_SECONDS = 60.0


def check_all(
    history: History, truth: Truth, *, second_opinion: bool = True
) -> tuple[list[Violation], Counter[str]]:
    """What is wrong beyond what was judged at once (`history.violations`), and figures.

    `second_opinion`: also the independent linearizability checker, which costs most.
    """
    conflicts, counts = check_conflicts(history, truth)
    found = [
        *check_dense(truth),
        *check_book(history, truth),
        *check_appends(history, truth),
        *check_outcomes(history),
        *check_marks(history, truth),
        *check_locks(history, truth),
        *check_views(history, truth),
        *conflicts,
        *check_applications(truth),
        *check_databases(history, truth),
        *check_replicas(truth),
        *check_failed(history, truth),
        *check_progress(history, truth, PROGRESS_BOUND_SECONDS),
    ]
    if second_opinion:
        found += check_linearizable(history, truth)
    return found, counts + figures(history, truth)
