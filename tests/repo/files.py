"""What the repository rules look at: the files git knows, read once."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file that is tracked, or would be (untracked and not ignored)."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return tuple(ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file())


def text_files(*suffixes: str) -> list[Path]:
    return [path for path in tracked_files() if path.suffix in suffixes]


def members() -> list[Path]:
    """The folders of the workspace members, found by their pyproject.toml; the package of extras has no
    source."""
    return sorted(
        path.parent
        for path in tracked_files()
        if path.name == "pyproject.toml" and path.parent != ROOT and (path.parent / "src").is_dir()
    )
