"""Files and folders that only their user may read, whatever the umask is: configurations name keys and
passwords."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def make_folder(path: Path) -> None:
    """Make it, or restrict one of this user that is wider; missing parents are made as usual. OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    if path.stat().st_mode & 0o077:
        path.chmod(FOLDER_MODE)


def opener(path: str, flags: int) -> int:
    """For `open`: a file that is made is its user's alone, and one that was wider is from now on."""
    descriptor = os.open(path, flags, FILE_MODE)
    os.fchmod(descriptor, FILE_MODE)
    return descriptor


def open_log(path: Path) -> IO[bytes]:
    """To append to. OSError."""
    return os.fdopen(opener(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC), "ab")


def write_text(path: Path, text: str) -> None:
    """Like `Path.write_text`."""
    with open(path, "w", opener=opener) as file:
        file.write(text)
