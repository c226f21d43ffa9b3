"""Recorded ZooKeeper trees of release 0.13.2 (tests/interop/golden)."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[4] / "tests" / "interop" / "golden" / "zk"


def tree(name: str) -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())
    return loaded
