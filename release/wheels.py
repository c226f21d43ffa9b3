"""`python -m release.wheels DIRECTORY`: wheels and sdists of every member that is shipped (make wheels).

Each wheel is made from its sdist, as an installer does it that has only that. hatchling runs in this process:
nothing is downloaded, and no isolated environment is made.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hatchling.build import build_sdist, build_wheel

from release import pyfiles
from release.tree import ROOT, Member, shipped


def build(members: Iterable[Member], directory: Path) -> list[Path]:
    """Make sdist and wheel of each member in the directory; their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    return [path for member in members for path in _both(member.folder, directory.resolve())]


def from_tree(folder: Path, directory: Path) -> Path:
    """A wheel from the sources as they are, without an sdist: what the images install."""
    with contextlib.chdir(folder):
        return directory / build_wheel(str(directory))


def _both(folder: Path, directory: Path) -> tuple[Path, Path]:
    with contextlib.chdir(folder):
        sdist = directory / build_sdist(str(directory))
    with tempfile.TemporaryDirectory(prefix="waltz-sdist-") as place:
        with tarfile.open(sdist) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since 3.11.4
            archive.extractall(place)
        (unpacked,) = Path(place).iterdir()
        return sdist, from_tree(unpacked, directory)


def main() -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release.wheels", description="Build what is released.")
    parser.add_argument("directory", type=Path, nargs="?", default=ROOT / "dist")
    directory = parser.parse_args().directory.resolve()
    for old in directory.glob("waltz*"):
        old.unlink()
    made = [*build(shipped(), directory), pyfiles.build(directory)]
    for path in made:
        sys.stdout.write(f"{path.name}\n")
    sys.stdout.write(f"{len(made)} files in {directory}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
