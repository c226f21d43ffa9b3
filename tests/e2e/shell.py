"""Running commands: output as text, a failure as one exception with the last lines."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LAST_LINES = 15


class CommandError(Exception):
    """A command that failed or took too long."""


def run(
    command: Sequence[str],
    *,
    text: str | None = None,
    timeout_seconds: float = 120.0,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Standard output of a command, run in the repository; `text` is its input. CommandError."""
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
            cwd=ROOT,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"{' '.join(command)}: no end after {timeout_seconds:g} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[-_LAST_LINES:]
        raise CommandError(f"{' '.join(command)}: exit code {done.returncode}: " + "\n".join(lines))
    return done.stdout
