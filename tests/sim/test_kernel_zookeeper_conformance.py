"""The suite that real ZooKeeper and its in-memory twin pass, on sessions of the simulated one."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.zookeeper import SimZooKeeper
from waltz_cluster.store import ZooKeeperStore

ROOT = "/conformance"
SUITE = Path(__file__).parents[2] / "libs/cluster/tests/cluster_tests/test_store_conformance.py"


def load() -> ModuleType:
    """The suite is not on the path of these tests."""
    spec = importlib.util.spec_from_file_location("store_conformance", SUITE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


suite = load()
CASES = sorted(name for name in vars(suite) if name.startswith("test_"))


def arguments(case: Callable[..., Any]) -> list[dict[str, Any]]:
    """One set of arguments, or one for each parameter of the case's own."""
    marks = [mark for mark in getattr(case, "pytestmark", []) if mark.name == "parametrize"]
    if not marks:
        return [{}]
    return [{marks[0].args[0]: value} for value in marks[0].args[1]]


@pytest.mark.parametrize("name", CASES)
def test_a_simulated_session_behaves_like_zookeeper(name: str) -> None:
    case: Callable[..., Any] = getattr(suite, name)
    wanted = inspect.signature(case).parameters
    for more in arguments(case):
        loop = SimLoop(name)

        async def main(given: dict[str, Any], loop: SimLoop = loop) -> None:
            zookeeper = SimZooKeeper(loop)

            async def new_session() -> ZooKeeperStore:
                return await zookeeper.connect(4.0)

            values = {**given, "root": ROOT, "new_session": new_session}
            if "store" in wanted:
                values["store"] = await new_session()
            await case(**{parameter: values[parameter] for parameter in wanted})

        loop.run(main(more))
        assert loop.errors == []
