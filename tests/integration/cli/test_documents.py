"""The commands of README.md and tools/README.md as a shell runs them, on a live cluster; tests/repo holds the list of all others."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.integration.cli.blocks import blocks
from tests.integration.cli.live import SECONDS, Live
from tests.repo.files import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ELSEWHERE = re.compile(
    r"make |kubectl |waltz demo|waltz local up|\.venv/bin/waltz local up|waltz tail .*--follow"
)
PROGRAM = re.compile(
    r"(?:\.venv/bin/)?(?:python -m (?P<module>[a-z_.]+)|(?P<script>waltz-server|waltz-storage))\b(?P<rest>.*)"
)


def _commands(name: str) -> list[str]:
    found = [
        command for block in blocks(ROOT / name, ROOT) if block.language == "" for command in block.commands
    ]
    assert found
    return [command for command in found if not ELSEWHERE.match(command)]


def _shell(command: str, live: Live) -> subprocess.CompletedProcess[str]:
    """As a person runs it at the top of the repository."""
    environment = {
        **os.environ,
        "CONF": live.config,
        "WALTZ_CONFIG": live.config,
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
    }
    return subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_commands_of_the_readme(live: Live) -> None:
    done = {command: _shell(command, live) for command in _commands("README.md")}
    assert [command for command, ended in done.items() if ended.returncode] == [], done
    (tail,) = [ended for command, ended in done.items() if "tail" in command]
    assert "hello, log" in tail.stdout


def test_commands_of_the_tools(live: Live) -> None:
    live.ok("append", "-p", "0", stdin=b"\n".join(b"before" for _ in range(42)) + b"\n")
    live.until("cluster", "verify")
    for command in _commands("tools/README.md"):
        ended = _shell(command, live)
        assert ended.returncode == 0, (command, ended)


@pytest.mark.parametrize("name", ["bench/README.md", "docs/testing.md", "services/server/README.md"])
def test_command_lines_of_python_programs_are_understood(name: str, tmp_path: Path) -> None:
    """Every option is one of the program's; what they do is tried by the tests of this file and by `make bench`, and the like."""
    lines = [
        command for block in blocks(ROOT / name, ROOT) for command in block.commands if PROGRAM.match(command)
    ]
    assert lines
    helps: dict[str, str] = {}
    for line in lines:
        match = PROGRAM.match(line)
        assert match is not None
        module = match["module"] or match["script"].replace("-", "_")
        if module not in helps:
            command = [str(ROOT / ".venv" / "bin" / "python"), "-m", module, "--help"]
            helps[module] = subprocess.run(
                command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=SECONDS
            ).stdout
        for word in shlex.split(match["rest"], comments=True):
            assert not word.startswith("--") or word in helps[module], (line, word)


def _lines(name: str, pattern: str) -> list[str]:
    found = [
        command
        for block in blocks(ROOT / name, ROOT)
        for command in block.commands
        if re.search(pattern, command)
    ]
    assert found
    return found


def _here(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """A line of a document, in a directory that may be written to, with the modules of the repository in reach."""
    python = ROOT / ".venv" / "bin" / "python"
    line = re.sub(r"^(?:\.venv/bin/)?python\b", str(python), command)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", "-c", line],
        cwd=directory,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
    )


def test_replay_lines_of_the_testing_page(tmp_path: Path) -> None:
    for line in _lines("docs/testing.md", r"tests\.sim --replay"):
        done = _here(line, tmp_path)
        assert done.returncode == 0, (line, done)
    assert (tmp_path / "t").stat().st_size > 10_000


def test_benchmark_lines_in_short(tmp_path: Path) -> None:
    """The same options, with a second in place of many."""
    (parts,) = _lines("bench/README.md", r"--only writing")
    done = _here(f"{parts} --quick --results {tmp_path}", tmp_path)
    assert done.returncode == 0, done
    assert (tmp_path / "results.json").exists()
    (yardstick,) = _lines("bench/README.md", r"bench\.limit")
    done = _here(f"{yardstick} --seconds 1", tmp_path)
    assert done.returncode == 0, done


def test_the_rendering_line_of_the_spark_page(tmp_path: Path) -> None:
    (line,) = _lines("docs/spark.md", r"waltz_spark\.kubernetes")
    (tmp_path / "spark-on-k8s").mkdir()
    shipped = ROOT / "spark-on-k8s" / "deploy"
    (tmp_path / "spark-on-k8s" / "deploy").mkdir()
    (tmp_path / "spark-on-k8s" / "deploy" / "applications").symlink_to(shipped / "applications")
    done = _here(line, tmp_path)
    assert done.returncode == 0, done
    for path in (shipped / "rendered").rglob("*.*"):
        made = tmp_path / "spark-on-k8s" / "deploy" / "rendered" / path.relative_to(shipped / "rendered")
        assert made.read_text() == path.read_text()
