"""docs/errors.md has every error that an application can catch, and says of each what the class says."""

import re

import pytest

import waltz_client
import waltz_client.sql
from tests.repo.files import ROOT
from waltz_client import AppendError, Outcome, WaltzClientError

PAGE = ROOT / "docs" / "errors.md"
ROW = re.compile(r"^\| `(\w+Error)` \|(.*)\|$", re.MULTILINE)
IN_LOG = {Outcome.FAILED: "no", Outcome.UNKNOWN: "perhaps", Outcome.COMMITTED: "yes"}
BASES = {WaltzClientError, AppendError}


def exported() -> dict[str, type[WaltzClientError]]:
    found = {}
    for module in (waltz_client, waltz_client.sql):
        for name in module.__all__:
            one = getattr(module, name)
            if isinstance(one, type) and issubclass(one, WaltzClientError):
                found[name] = one
    return found


def rows() -> dict[str, list[str]]:
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in ROW.findall(PAGE.read_text())}


def test_every_error_is_on_the_page_once() -> None:
    names = [name for name, _ in ROW.findall(PAGE.read_text())]
    assert sorted(names) == sorted(exported())


def test_the_page_says_which_errors_come_with_answered_appends_only() -> None:
    only = "`client.answeredAppends` only"
    of_code = {name for name, error in exported().items() if only in " ".join((error.__doc__ or "").split())}
    assert of_code
    assert of_code == {name for name, cells in rows().items() if cells[-1].startswith(f"With {only}")}


@pytest.mark.parametrize("name", sorted(exported()))
def test_the_page_says_what_the_class_says(name: str) -> None:
    error, (*facts, advice) = exported()[name], rows()[name]
    assert advice
    if error in BASES:
        assert set(facts) == {"see the class"}
        return
    expected = ["yes" if error.retriable else "no"]
    if issubclass(error, AppendError):
        expected.insert(0, IN_LOG[error.outcome])
    assert facts == expected
