"""Standard input, output and error of a program, as its parent left them."""

from __future__ import annotations

import os
import sys


def complete() -> None:
    """First of all in every program: /dev/null on each of the descriptors 0, 1 and 2 that is closed, before a
    file or a socket gets that number, and is written to or closed as if it was a standard stream. And what
    the encoding of standard output lacks is written with backslashes, as on standard error."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115
    reconfigure = getattr(sys.stdout, "reconfigure", None)  # what a test puts there may have none
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
