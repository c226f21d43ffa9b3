"""Hints that name a `waltz` command, in the form in which this one was started: `waltz` is on PATH only where
somebody put it there."""

from __future__ import annotations

from waltz_runtime.command import invocation


def waltz_command() -> str:
    """How a shell runs this command again."""
    return invocation("waltz", "waltz_tools")


def as_started(hint: str) -> str:
    """The hint with its commands, written as `waltz …` in backticks, in that form."""
    return hint.replace("`waltz ", f"`{waltz_command()} ")
