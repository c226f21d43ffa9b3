"""The units of manifests/systemd: what systemd says of them, and what their command lines mean to our
programs."""

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.files import ROOT
from waltz_runtime.exit_code import ExitCode
from waltz_runtime.process import run_service

UNITS = {"waltz-server@.service": "h1", "waltz-storage@.service": "s1"}
INSTALLED = "/opt/waltz/bin/"
PROGRAMS = Path(sys.executable).parent


def _settings(unit: str) -> dict[str, str]:
    text = (ROOT / "manifests" / "systemd" / unit).read_text()
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines), "a setting is given twice"
    return found


def test_every_unit_is_tested() -> None:
    assert {path.name for path in (ROOT / "manifests" / "systemd").iterdir()} == UNITS.keys()


@pytest.mark.parametrize(("unit", "name"), UNITS.items())
def test_the_command_line_is_understood_and_names_the_file(unit: str, name: str) -> None:
    """The program reads its file and ends with 1, because there is none; with 2 the line would be wrong."""
    program, *arguments = _settings(unit)["ExecStart"].replace("%i", name).split()
    assert program == f"{INSTALLED}{unit.partition('@')[0]}"
    assert arguments == [f"/etc/waltz/{name}.yaml"]
    ended = subprocess.run(
        [PROGRAMS / Path(program).name, *arguments], check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == ExitCode.FAILED
    assert f"cannot read configuration file {arguments[0]}" in ended.stderr


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_waits_for_the_orderly_end_and_starts_again_what_failed(unit: str) -> None:
    settings = _settings(unit)
    limit = inspect.signature(run_service).parameters["shutdown_timeout_seconds"].default
    assert float(settings["TimeoutStopSec"]) > limit
    assert (settings["Restart"], settings["StartLimitIntervalSec"]) == ("on-failure", "0")
    assert settings["RestartPreventExitStatus"] == str(int(ExitCode.USAGE))


def test_a_storage_node_may_write_where_the_pages_put_its_files() -> None:
    """Everything else is read-only for it: a journal on a device of its own too, unless the unit names it."""
    settings = _settings("waltz-storage@.service")
    writable = [path.removeprefix("-") for path in settings["ReadWritePaths"].split()]
    mounts = settings["RequiresMountsFor"].split()
    pages = [(ROOT / "docs" / name).read_text() for name in ("three-machines.md", "operations.md")]
    said = {
        path
        for page in pages
        for path in re.findall(r"storage\.(?:journal\.)?directory: (/[a-z/]+)/s1\b", page)
    }
    assert said == {"/data", "/journal"}
    for path in said:
        assert f"{path}/%i" in writable
        assert f"{path}/%i" in mounts


@pytest.mark.parametrize(("unit", "name"), UNITS.items())
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_it(tmp_path: Path, unit: str, name: str) -> None:
    text = (ROOT / "manifests" / "systemd" / unit).read_text().replace(INSTALLED, f"{PROGRAMS}/")
    path = tmp_path / unit.replace("@", f"@{name}")
    path.write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    said = [line for line in verified.stderr.splitlines() if path.name in line or unit in line]
    assert (verified.returncode, said) == (0, []), verified.stderr
