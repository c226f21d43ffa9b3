"""Recorded ZooKeeper trees of release 0.13.2 (tests/interop/golden)."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[4] / "tests" / "interop" / "golden" / "zk"


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def tree(name: str) -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())
    return loaded


def data(entry: dict[str, Any]) -> bytes | None:
    return None if entry["hex"] is None else bytes.fromhex(entry["hex"])
