"""The files of a release, built once for all tests of a worker."""

from pathlib import Path

import pytest
from release import pyfiles, wheels
from release.tree import shipped


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheels` leaves in dist/."""
    directory = tmp_path_factory.mktemp("dist")
    wheels.build(shipped(), directory)
    pyfiles.build(directory)
    return directory
