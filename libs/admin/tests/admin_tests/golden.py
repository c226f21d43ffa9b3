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


def tree(name: str) -> dict[str, dict[str, Any]]:
    if FOLDER is None or not FOLDER.is_dir():
        pytest.skip("the recorded trees of 0.13.2 are not on this machine")
    loaded: dict[str, dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())
    return loaded
