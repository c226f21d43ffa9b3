"""What tests of real processes share: a file whose tests build on one another ends with the first that
fails."""

from collections.abc import Generator

import pytest

_FAILED = pytest.StashKey[str]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember the first failure of a file that is marked `staged`."""
    report = yield
    stash = _stash_of(item)
    if stash is not None and report.failed and _FAILED not in stash:
        cause = call.excinfo.exconly(tryshort=True) if call.excinfo is not None else "?"
        stash[_FAILED] = f"{item.name} failed before ({report.when}): {cause}"
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail at once what would find the stage in a state that nobody meant."""
    stash = _stash_of(item)
    if stash is not None and _FAILED in stash:
        pytest.fail(stash[_FAILED], pytrace=False)


def _stash_of(item: pytest.Item) -> pytest.Stash | None:
    module = item.getparent(pytest.Module)
    return module.stash if module is not None and item.get_closest_marker("staged") is not None else None
