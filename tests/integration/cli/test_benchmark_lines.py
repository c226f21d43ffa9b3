"""The lines of bench/README.md, as a shell runs them, in short."""

import json
from pathlib import Path

import pytest

from tests.integration.cli.lines import here, lines_of
from tests.integration.cli.live import SECONDS

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

BENCHMARKS = {
    # what a line has -> what makes it short, and the parts and runs that are measured then
    "--quick": ("--only tasks", ["tasks"], 1),
    "--runs 3": ("--only memory --quick", ["memory"], 3),
    "--only writing": ("--quick", ["tasks", "writing"], 1),
    "--only hostile": ("--quick", ["hostile"], 1),
    "--only window": ("--quick", ["window"], 1),
    "--only contention": ("--quick", ["contention"], 1),
    "--only fan-out": ("--quick", ["fan-out"], 1),
    "--only curve": ("--quick", ["curve"], 1),
    "--only checksum": ("--quick", ["checksum"], 1),
    "--only catch-up": ("--quick", ["catch-up"], 1),
    "--only takeover": ("--quick", ["takeover"], 1),
    "--only compressed": ("--quick", ["compressed"], 1),
}
TOO_LONG = {"--only operator"}
"""Even in short it takes minutes on a machine of its own. The operator's tests run what it is made of."""


@pytest.mark.parametrize("has", BENCHMARKS)
def test_benchmark_lines_in_short(has: str, tmp_path: Path) -> None:
    """The same options, with a second in place of many, and one part in place of all."""
    short, parts, runs = BENCHMARKS[has]
    (line,) = lines_of("bench/README.md", rf"-m bench {has}\b")
    done = here(f"{line} {short} --results {tmp_path}", tmp_path, 3 * SECONDS)
    assert done.returncode == 0, done
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["options"]["parts"], results["options"]["runs"]) == (parts, runs)
    assert results["figures"]
    assert {len(figure["runs"]) for figure in results["figures"]} == {runs}


def test_the_line_of_the_yardstick(tmp_path: Path) -> None:
    (yardstick,) = lines_of("bench/README.md", r"bench\.limit")
    done = here(f"{yardstick} --seconds 1", tmp_path)
    assert done.returncode == 0, done
