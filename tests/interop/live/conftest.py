"""The release, once per run; without the setting one clear line. A setting that leads nowhere is an error,
not a skip."""

import os

import pytest

from tests.interop.live.release import SETTING, Release


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Here and not in the fixture, so that all skips are one line of the summary."""
    if "release" in getattr(item, "fixturenames", ()) and not os.environ.get(SETTING):
        pytest.skip(f"{SETTING} is not set: it names a build of release 0.13.2 (docs/testing.md)")


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return Release.find(os.environ[SETTING], tmp_path_factory.mktemp("release"))
