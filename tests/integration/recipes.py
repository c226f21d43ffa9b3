"""The command of a target of the Makefile, as `make` prints it."""

import os
import subprocess

from tests.repo.files import ROOT

_SECONDS = 30


def recipe(target: str, *variables: str) -> str:
    """The one line that `make TARGET VARIABLE=VALUE…` runs once everything is installed."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS", "ROWS"))
    }
    asked = ["make", "--dry-run", "--old-file", "setup", target, *variables]
    printed = subprocess.run(
        asked, cwd=ROOT, env=environment, check=True, capture_output=True, text=True, timeout=_SECONDS
    ).stdout
    (command,) = printed.splitlines()
    return command
