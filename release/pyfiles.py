"""The archive for Spark's `--py-files`: `waltz_spark` with everything it imports that is pure Python.

Python imports from an archive, but not compiled modules. So the archive has ours, kazoo and PyYAML (whose
compiled part is an accelerator); numpy, pyarrow, pydantic and PySpark have to be in the Python of the
platform. It is made from the wheels, and has their metadata and licenses.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from release.tree import version

OURS = ("waltz_protocol", "waltz_cluster", "waltz_client", "waltz_spark")
THEIRS = ("kazoo", "pyyaml")
"""Installed next to hatchling, from the pins of requirements/pyfiles.txt."""
_TIME = (1980, 1, 1, 0, 0, 0)
"""Of every file, so that equal contents make equal archives."""


def build(directory: Path) -> Path:
    """Make the archive from the wheels in the directory; its path."""
    archive = directory / f"waltz_spark-{version()}-py-files.zip"
    contents = {**dict(_of_wheels(directory)), **dict(_of_others())}
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for name in sorted(contents):
            target.writestr(zipfile.ZipInfo(name, _TIME), contents[name], zipfile.ZIP_DEFLATED)
    return archive


def _of_wheels(directory: Path) -> Iterator[tuple[str, bytes]]:
    for package in OURS:
        with zipfile.ZipFile(directory / f"{package}-{version()}-py3-none-any.whl") as wheel:
            for name in wheel.namelist():
                if not name.endswith(("/RECORD", "/WHEEL")):
                    yield name, wheel.read(name)


def _of_others() -> Iterator[tuple[str, bytes]]:
    for name in THEIRS:
        for file in distribution(name).files or ():
            if _wanted(file.as_posix()):
                yield file.as_posix(), Path(str(file.locate())).read_bytes()


def _wanted(name: str) -> bool:
    """Modules without their tests; metadata and licenses."""
    folder = name.partition("/")[0]
    if folder.endswith(".dist-info"):
        return name.endswith("/METADATA") or "/licenses/" in name or "/LICENSE" in name
    return name.endswith(".py") and "/tests/" not in name and not name.startswith("..")
