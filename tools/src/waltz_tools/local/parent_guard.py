"""Starts a program that dies with its parent: `python parent_guard.py PARENT_PID FD PROGRAM ARGUMENT…`.

Model: on Linux the kernel is asked to send SIGKILL to this process when its parent ends (PR_SET_PDEATHSIG,
which survives exec); then the program takes the place of this process, under the same pid. Elsewhere the
program is started without that protection and the pid files of the cluster directory find left-overs at the
next start.

What the program makes is readable by its user alone, unless it sets another umask.

FD is the writing end of a pipe (or `-`); it is closed when the program starts, which shows the parent
that the guard has done its work.

The kernel's rule is about the parent *thread*: start guarded programs from a thread that lives as long as
they should. Run as a file and free of imports of the package, so that starting costs one bare interpreter.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

NO_PIPE = "-"
_PR_SET_PDEATHSIG = 1
_UMASK = 0o077


def die_with_parent(parent_pid: int) -> bool:
    """Ask for SIGKILL at the parent's end; True when the kernel agreed. Ends the process if the parent is
    gone already."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        agreed: bool = (
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) == 0
        )
    except (OSError, AttributeError):
        return False
    if os.getppid() != parent_pid:
        # The parent ended between our start and the call above: nobody will ever send the signal.
        raise SystemExit(1)
    return agreed


def main(arguments: list[str]) -> None:
    if (
        len(arguments) < 3
        or not arguments[0].isdigit()
        or not (arguments[1].isdigit() or arguments[1] == NO_PIPE)
    ):
        raise SystemExit("usage: parent_guard.py PARENT_PID FD PROGRAM [ARGUMENT…]")
    die_with_parent(int(arguments[0]))
    program = arguments[2]
    os.umask(_UMASK)
    try:
        if arguments[1] != NO_PIPE:
            os.set_inheritable(int(arguments[1]), False)
        os.execvp(program, arguments[2:])
    except OSError as error:
        raise SystemExit(f"Error: cannot start {program}: {error.strerror}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
