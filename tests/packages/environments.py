"""Fresh environments without a network: our wheels are installed by pip, what is not ours is linked in.

Linked is what the metadata of our wheels asks for, and what that needs in turn, so a dependency that nobody
names is missing here as it would be for a user.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.repo.files import ROOT

NEWER = ("3.12", "3.13", "3.14")
SECONDS = 300
"""For one command; the machine may be busy."""


@dataclass(frozen=True)
class Interpreter:
    """A Python, and the environment with the pinned packages for it."""

    version: str
    python: Path
    site_packages: Path


def interpreters() -> list[Any]:
    """Parameters of tests: the Python that runs them, and the newer ones of `make interpreters`."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    own = Interpreter(running, Path(sys.executable), Path(sysconfig.get_paths()["purelib"]))
    return [
        pytest.param(own, id=f"python-{running}"),
        *(_newer(version) for version in NEWER if version != running),
    ]


def _newer(version: str) -> Any:
    home, name = ROOT / f".venv-{version}", f"python-{version}"
    if not (home / ".stamp").exists():
        reason = f"there is no Python {version} with the pinned packages: make interpreters prepares those that can be had"
        return pytest.param(None, id=name, marks=pytest.mark.skip(reason))
    (packages,) = home.glob("lib/python3.*/site-packages")
    return pytest.param(Interpreter(version, home / "bin/python", packages), id=name)


@dataclass(frozen=True)
class Environment:
    """A new environment. Its programs see neither the checkout nor the settings of whoever runs the tests."""

    home: Path
    interpreter: Interpreter

    @classmethod
    def make(cls, home: Path, interpreter: Interpreter) -> Environment:
        """With pip, as Python brings it."""
        # The interpreter itself, not that of an environment: what is installed there must not shine through.
        base = _output([str(interpreter.python), "-c", "import sys; print(sys._base_executable)"]).strip()
        _output([base, "-m", "venv", str(home)])
        return cls(home, interpreter)

    @property
    def site_packages(self) -> Path:
        (found,) = self.home.glob("lib/python3.*/site-packages")
        return found

    def program(self, name: str) -> str:
        return str(self.home / "bin" / name)

    def install(self, wheels: Path, *names: str) -> None:
        """Our wheels by their names, with extras, as `pip install` does it where there is no index."""
        self.link(foreign(wheels, names))
        self.run("python", "-m", "pip", "install", "--quiet", "--find-links", str(wheels), *names)

    def link(self, names: Iterable[str]) -> None:
        """Distributions of others with what they need. AssertionError where the pins do not have one."""
        known = _by_name([str(self.interpreter.site_packages)])
        for line in _closure(names, known):
            name = canonicalize_name(Requirement(line).name)
            assert name in known, f"{name} is not among the pins of requirements/dev.txt"
            for entry in _top_level(known[name]):
                target = self.site_packages / entry
                if not target.exists():
                    target.symlink_to(self.interpreter.site_packages / entry)

    def run(self, program: str, *arguments: str, **more: str) -> str:
        """What a program of this environment prints, run from its folder."""
        return _output([self.program(program), *arguments], cwd=self.home, env=self.variables(**more))

    def shell(self, line: str) -> str:
        """What a line of a document prints."""
        return _output(["bash", "-c", line], cwd=self.home, env=self.variables())

    def variables(self, **more: str) -> dict[str, str]:
        """Of the process's own those that name no Python, no package index and no configuration."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PIP_", "PYTHON", "PYSPARK_", "SPARK_", "WALTZ_", "UV_"))
            and key != "VIRTUAL_ENV"
        }
        return {
            **kept,
            "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            "PIP_CONFIG_FILE": os.devnull,
            **more,
        }


def _output(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=env, check=False, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def foreign(wheels: Path, names: Iterable[str]) -> set[str]:
    """What our wheels require that is not ours: `kazoo>=2.10`, and so on."""
    ours = _by_name([str(wheel) for wheel in wheels.glob("*.whl")])
    return {line for line in _closure(names, ours) if canonicalize_name(Requirement(line).name) not in ours}


def _by_name(places: list[str]) -> dict[str, Distribution]:
    return {canonicalize_name(one.metadata["Name"]): one for one in distributions(path=places)}


def _closure(names: Iterable[str], known: Mapping[str, Distribution]) -> set[str]:
    """The requirements with all that they require, as far as it is known."""
    todo, seen = list(names), set[str]()
    while todo:
        line = todo.pop()
        if line in seen:
            continue
        seen.add(line)
        wanted = Requirement(line)
        if (one := known.get(canonicalize_name(wanted.name))) is not None:
            todo += _required_by(one, wanted.extras)
    return seen


def _required_by(one: Distribution, extras: Iterable[str]) -> Iterator[str]:
    """What a distribution requires with these extras. Markers hold for the Python that runs the tests: what
    differs between versions (backports) is needed by the oldest."""
    for wanted in map(Requirement, one.requires or ()):
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            wanted.marker = None
            yield str(wanted)


def _top_level(one: Distribution) -> set[str]:
    """The folders and files of a distribution in site-packages."""
    names = {file.parts[0] for file in one.files or ()}
    return {name for name in names if name not in ("..", "__pycache__", "bin")}
