"""No import cycle between shipped modules, and a module that calls itself pure is pure, by all that it
imports."""

import re

import pytest

from tests.repo.files import ROOT
from tests.repo.import_graph import cycles, modules, reached

IMPURE = {
    "asyncio", "socket", "select", "ssl", "random", "secrets", "time", "threading", "subprocess", "multiprocessing",
    "aiohttp", "kazoo", "kopf", "kubernetes", "uvloop",
}  # fmt: skip
"""Where sockets, clocks, tasks, threads and random numbers come from."""
PURE = re.compile(r"\bPure\b(?!,? but for)")
"""A docstring that says so; the wording "Pure, but for …" names an exception that a reader can judge."""
IMPURE_BY_IMPORT = {
    "waltz_spark.sink.attempt",
    "waltz_spark.sink.requests",
    "waltz_tools.k8s.view",
    "waltz_tools.local.configs",
}
"""They call nothing impure, but a module that they import for its values does. This list may only become
shorter."""
HELD_BY_CONTRACT = "the storage engine and the pure modules know no asyncio"


def test_no_import_cycles() -> None:
    """Imports for type checkers and inside functions count."""
    assert not cycles()


def pure() -> list[str]:
    return sorted(name for name, module in modules().items() if PURE.search(module.docstring))


def test_pure_modules_are_found() -> None:
    assert len(pure()) > 60


@pytest.mark.parametrize("name", pure())
def test_a_module_that_says_it_is_pure_is_pure(name: str) -> None:
    impure = {foreign: by for foreign, by in reached(name).items() if foreign in IMPURE}
    assert bool(impure) == (name in IMPURE_BY_IMPORT), impure


def test_every_decision_of_the_operator_says_that_it_is_pure() -> None:
    """The contract on the packages holds them; the word informs the reader."""
    silent = [
        name
        for name, module in modules().items()
        if re.match(r"waltz_operator\.(plan|model)\.", name) and "Pure" not in module.docstring
    ]
    assert not silent


def test_modules_under_the_purity_contract_exist() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    contract = text[text.index(HELD_BY_CONTRACT) :].partition("forbidden_modules")[0]
    named = re.findall(r'"(waltz_[\w.]+)"', contract)
    assert len(named) > 10
    assert not [name for name in named if name not in modules()]
