"""SIGTERM before a program can handle it in order: imported first of all by the `__main__` of every program.

Elsewhere the kernel ends a process that has no handler. It does not end process 1 of a container, and
importing a program takes seconds on a busy machine: a pod that was to end in that time came up, served, and
was killed when its grace period was over. Also a command that never handles the signal ends so.
"""

from __future__ import annotations

import os
import signal


def _end(number: int, _frame: object) -> None:
    """As the kernel ends another process; nothing is to be left in order yet."""
    os._exit(128 + number)


if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
    signal.signal(signal.SIGTERM, _end)
