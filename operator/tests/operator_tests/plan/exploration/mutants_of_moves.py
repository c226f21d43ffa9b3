"""Bugs planted where partitions move between servers by load; the others are in `mutants`."""

from __future__ import annotations

from .planted import OPERATOR as _OPERATOR
from .planted import Planted

MUTANTS_OF_MOVES = {
    "partitions_move_before_the_window_is_over": Planted(
        "loads of less than a window decide nothing",
        "partitions move by load",
        (
            (
                f"{_OPERATOR}/plan/server_moves.py",
                "view.load.measured_seconds < limits.window_seconds:\n",
                "view.load.measured_seconds < 0:\n",
            ),
        ),
        "before the window",
    ),
    "a_partition_does_not_rest": Planted(
        "a partition that moved stays for the cool-down",
        "partitions move by load",
        (
            (
                f"{_OPERATOR}/plan/server_moves.py",
                "facts.now - one.at < limits.cooldown_seconds]\n",
                "facts.now - one.at < 0]\n",
            ),
        ),
        "within the cool-down",
    ),
    "a_move_that_nobody_saw_is_forgotten": Planted(
        "a decision counts whatever came of it",
        "partitions move by load",
        (
            (
                f"{_OPERATOR}/plan/server_moves.py",
                "tuple(_given_up(one) if one.due else one for one in records)\n",
                "tuple(one for one in records if not one.due)\n",
            ),
        ),
        "within the cool-down",
    ),
    "partitions_move_for_nothing": Planted(
        "a move lowers the larger load by a stated part",
        "partitions move by load",
        (
            (
                f"{_OPERATOR}/plan/load_balance.py",
                "if one.larger <= most and len(",
                "if one.larger and len(",
            ),
        ),
    ),
    "partitions_move_during_a_migration": Planted(
        "nothing moves by load while a migration does",
        "partitions move by load",
        (
            (
                f"{_OPERATOR}/plan/server_moves.py",
                "    if working is not None:\n",
                "    if working is not None and working.over:\n",
            ),
        ),
        "during a migration",
    ),
}
