"""The release, once per run; without it one clear line."""

import pytest

from tests.interop.live.release import Release, ReleaseMissingError


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    try:
        return Release.find(tmp_path_factory.mktemp("release"))
    except ReleaseMissingError as missing:
        pytest.skip(str(missing))
