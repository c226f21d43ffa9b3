"""The program of docs/five-minutes.md in two offices, on any cluster and in any environment."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.integration.cli.blocks import blocks
from tests.repo.files import ROOT

SECONDS = 120.0
"""For one office; the machine may be busy."""


def two_offices(place: Path, config: Path, python: str, environment: Mapping[str, str]) -> None:
    """Save the program in a folder, beside a cluster whose client file is given, and sell four seats."""
    _, program, *_ = blocks(ROOT / "docs" / "five-minutes.md", ROOT)
    folder = place / "my-cluster" / "conf"
    folder.mkdir(parents=True)
    (folder / "client.yaml").symlink_to(config)
    (place / "seats.py").write_text(program.text)

    def office(name: str, *guests: str) -> set[str]:
        done = subprocess.run(
            [python, "seats.py", name], input="".join(f"{guest}\n" for guest in guests),
            cwd=place, env=environment, check=False, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout, done.stderr)
        return set(done.stdout.splitlines())

    assert office("east", "alice") == {"seat 1 for alice", "seat 1 is taken by alice"}
    assert office("west", "bob", "carol") >= {
        "seat 1 is taken by alice",
        "seat 2 for bob",
        "seat 3 for carol",
    }
    assert office("east", "dave", "erin") >= {"seat 3 is taken by carol", "seat 4 for dave", "sold out"}
