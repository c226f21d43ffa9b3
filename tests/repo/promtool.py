"""Prometheus' own checker, from Debian's package `prometheus`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
import yaml

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


def promtool(*arguments: object, given: str | None = None) -> str:
    """Its output; AssertionError with all of it when it finds something. `given`: its standard input."""
    assert PROMTOOL is not None
    command = [PROMTOOL, *map(str, arguments)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def check_metrics(page: str, but: Iterable[str] = ()) -> None:
    """Names, kinds and help of what a process serves. `but`: parts of findings that are not ours to
    change."""
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=page, capture_output=True, text=True, timeout=60, check=False
    )
    found = [line for line in (done.stdout + done.stderr).splitlines() if line]
    assert not [line for line in found if not any(part in line for part in but)]


def check_expressions(folder: Path, expressions: Mapping[str, str]) -> None:
    """Each parses: they are wrapped into recording rules. Key: a name to find it by."""
    rules = [
        {"record": f"checked:number_{number}", "expr": expression, "labels": {"of": name}}
        for number, (name, expression) in enumerate(expressions.items())
    ]
    path = folder / "expressions.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "checked", "rules": rules}]}))
    promtool("check", "rules", path)
