"""Which tests belong to which source file: the nearest ones first, then all of its member.

Written down, not derived: what shows a module's purpose is the name of its test file, and a wrong line costs
time only. A line of `nearest.txt` is a source file from its package on, and its tests from the test package
of the same member on, or of another one (`admin:test_replace`); `@name` is a group of tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tests.sim.mutants.loader import ROOT

_MEMBERS = {
    "admin": "libs/admin",
    "client": "client",
    "cluster": "libs/cluster",
    "operator": "operator",
    "protocol": "libs/protocol",
    "server": "services/server",
    "spark": "spark-on-k8s",
    "storage": "services/storage",
    "tools": "tools",
}


def _nearest(lines: list[str]) -> dict[str, tuple[str, ...]]:
    """What follows `src/` -> test files."""
    groups: dict[str, list[str]] = {}
    found: dict[str, tuple[str, ...]] = {}

    def tests(words: list[str], own: str) -> Iterator[str]:
        for word in words:
            if word in groups:
                yield from tests(groups[word], own)
                continue
            member, _, name = word.rpartition(":")
            member = member or own
            yield f"{_MEMBERS[member]}/tests/{member}_tests/{name}.py"

    for line in lines:
        first, *words = line.split()
        if first.startswith("@"):
            groups[first] = words
        elif first in found:
            raise ValueError(f"nearest.txt: {first} has two lines")
        else:
            found[first] = tuple(tests(words, first.partition("/")[0].removeprefix("waltz_")))
    return found


NEAREST = _nearest((Path(__file__).parent / "nearest.txt").read_text().splitlines())

IGNORED = (
    "services/server/tests/server_tests/test_main.py",
    "services/storage/tests/storage_tests/test_process.py",
    "client/tests/client_tests/test_sql_applier.py",
    "client/tests/client_tests/test_sql_ended_transactions.py",
    "client/tests/client_tests/test_sql_with_clients.py",
)
"""They start processes, which do not have the bug, or try a database."""


def member_of(file: str) -> PurePosixPath:
    """The folder that holds `src` and `tests`."""
    parts = PurePosixPath(file).parts
    return PurePosixPath(*parts[: parts.index("src")])


def stages_of(file: str) -> list[list[str]]:
    """The nearest tests, then those of the member."""
    nearest = NEAREST.get(file.partition("/src/")[2], ())
    whole = [str(member_of(file) / "tests")]
    return [list(nearest), whole] if nearest else [whole]


def missing_files() -> list[str]:
    """What is named here and does not exist."""
    tests = {name for files in NEAREST.values() for name in files} | set(IGNORED)
    sources = [
        f"{member}/src/{name}"
        for name in NEAREST
        for member in _MEMBERS.values()
        if (ROOT / member / "src").is_dir()
    ]
    known = {name for name in sources if (ROOT / name).is_file()}
    lost = [name for name in NEAREST if not any(path.endswith(f"/src/{name}") for path in known)]
    return sorted(lost + [name for name in tests if not (ROOT / name).is_file()])
