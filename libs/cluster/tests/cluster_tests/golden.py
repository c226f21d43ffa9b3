"""Recorded trees of release 0.13.2, where a machine has them; tests that need them skip elsewhere."""

import json
import os
from pathlib import Path
from typing import Any

import pytest


def _folder() -> Path | None:
    """Named by WALTZ_GOLDEN, or in a folder beside the repository."""
    named = os.environ.get("WALTZ_GOLDEN")
    if named:
        return Path(named) / "zk"
    return next(iter(sorted(Path(__file__).resolve().parents[4].parent.glob("*/golden/zk"))), None)


FOLDER = _folder()
needs_golden = pytest.mark.skipif(
    FOLDER is None, reason="the recorded trees of 0.13.2 are not on this machine"
)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json")) if FOLDER else []


def tree(name: str) -> dict[str, dict[str, Any]]:
    if FOLDER is None:
        pytest.skip("the recorded trees of 0.13.2 are not on this machine")
    loaded: dict[str, dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())
    return loaded


def data(entry: dict[str, Any]) -> bytes | None:
    return None if entry["hex"] is None else bytes.fromhex(entry["hex"])
