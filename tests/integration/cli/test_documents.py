"""The commands of README.md and tools/README.md as a shell runs them, on a live cluster; tests/repo holds the
list of all others."""

import contextlib
import http.client
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.integration.cli.blocks import blocks
from tests.integration.cli.lines import here, lines_of, shell
from tests.integration.cli.live import SECONDS, Live
from tests.repo.files import ROOT
from waltz_testkit.ports import free_ports

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ELSEWHERE = re.compile(r"make |kubectl |waltz local up|\.venv/bin/waltz local up|waltz tail .*--follow")


def _commands(name: str) -> list[str]:
    found = [
        command for block in blocks(ROOT / name, ROOT) if block.language == "" for command in block.commands
    ]
    assert found
    return [command for command in found if not ELSEWHERE.match(command)]


def _shell(command: str, live: Live) -> subprocess.CompletedProcess[str]:
    """As a person runs it at the top of the repository."""
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    return shell(command, ROOT, SECONDS, CONF=live.config, WALTZ_CONFIG=live.config, PATH=path)


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


@pytest.mark.parametrize("role", ["server", "storage"])
def test_lines_of_the_services(role: str, live: Live, tmp_path: Path) -> None:
    """As they are there, with a file of that name: a further process next to the cluster, healthy, and gone
    after SIGTERM."""
    ports = [f"{role}.port", f"{role}.jetty.port", *(["storage.admin.port"] if role == "storage" else [])]
    keys = live.keys(f"{role}-1")
    assert {name for name in keys if name.endswith(".port")} == set(ports)
    keys |= dict(zip(ports, free_ports(len(ports)), strict=True))
    if role == "storage":
        keys["storage.directory"] = str(tmp_path / "data")
        (tmp_path / "data").mkdir()
    (tmp_path / "CONFIG.yaml").write_text(yaml.safe_dump(keys))
    environment = {**os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}
    for line in lines_of(f"services/{role}/README.md", r"CONFIG\.yaml"):
        with (tmp_path / "log").open("wb") as log:
            command = ["bash", "-c", f"exec {line}"]
            process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            _until_healthy(int(str(keys[f"{role}.jetty.port"])), process, tmp_path / "log")
        finally:
            process.terminate()
            code = process.wait(SECONDS)
        assert code == 0, (tmp_path / "log").read_text()
    live.until("cluster", "verify")


def _until_healthy(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        with contextlib.suppress(OSError), contextlib.closing(connection):
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.05)


def test_lines_of_the_testing_page(tmp_path: Path) -> None:
    """As they are there; of the many seeds, three."""
    (many,) = lines_of("docs/testing.md", r"tests\.sim --seeds")
    for line in (f"{many} --seeds 0:3", *lines_of("docs/testing.md", r"tests\.sim --replay")):
        done = here(line, tmp_path)
        assert done.returncode == 0, (line, done)
    assert (tmp_path / "t").stat().st_size > 10_000


def test_the_rendering_line_of_the_spark_page(tmp_path: Path) -> None:
    (line,) = lines_of("docs/spark.md", r"-m render ")
    deploy = ROOT / "spark-on-k8s" / "deploy"
    for name in ("applications", "render"):
        (tmp_path / name).symlink_to(deploy / name)
    done = here(line, tmp_path)
    assert done.returncode == 0, done
    for path in (deploy / "rendered").rglob("*.*"):
        made = tmp_path / "rendered" / path.relative_to(deploy / "rendered")
        assert made.read_text() == path.read_text()
