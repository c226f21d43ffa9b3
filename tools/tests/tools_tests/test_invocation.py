"""Hints print commands that work as they are printed."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from waltz_runtime.exit_code import ExitCode
from waltz_tools.__main__ import run, show
from waltz_tools.errors import ToolError
from waltz_tools.invocation import as_started, waltz_command

SCRIPT = Path(sys.executable).with_name("waltz")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["/opt/waltz/bin/waltz", "up"], "/opt/waltz/bin/waltz"),
        ([".venv/bin/waltz"], ".venv/bin/waltz"),
        (["a b/waltz"], "'a b/waltz'"),
        (["/x/waltz_tools/__main__.py"], f"{sys.executable} -m waltz_tools"),
        (["/usr/bin/pytest"], "waltz"),
        ([""], "waltz"),
    ],
)
def test_a_hint_is_what_the_program_was_started_as(
    argv: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setenv("PATH", "/nowhere")
    assert waltz_command() == expected
    assert as_started("do `waltz zk list`, then `waltz doctor`") == (
        f"do `{expected} zk list`, then `{expected} doctor`"
    )
    show(ToolError("run `waltz zk list` first"))
    assert capsys.readouterr().err == f"Error: run `{expected} zk list` first\n"


def test_where_it_is_on_path_the_name_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "waltz"
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert waltz_command() == "waltz"
    monkeypatch.setattr(sys, "argv", ["/another/bin/waltz"])
    assert waltz_command() == "/another/bin/waltz"


@pytest.mark.parametrize("started", [[str(SCRIPT)], [sys.executable, "-m", "waltz_tools"]])
def test_usage_and_hint_of_a_process_can_be_typed(started: list[str]) -> None:
    """PATH is without the environment, as after `make setup`."""
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*started, "zk", "--help"], env=environment, capture_output=True, text=True, check=True
    )
    command = shlex.join(started)
    assert done.stdout.split("Usage: ", 1)[1].startswith(f"{command} zk ")
    again = subprocess.run(["sh", "-c", f"{command} zk --help"], env=environment, check=False)
    assert again.returncode == 0


def test_the_plugin_of_kubectl_is_the_group_k8s() -> None:
    """As kubectl starts it: a program of this name on PATH, with everything behind `kubectl waltz`."""
    plugin = SCRIPT.with_name("kubectl-waltz")

    def printed(*command: object) -> str:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
        return done.stdout

    def options(text: str) -> str:
        """What comes after the usage, which names the program as it was started."""
        usage, _, rest = text.partition("\n\n")
        assert "k8s upgrade [OPTIONS]" in usage
        return rest

    assert options(printed(plugin, "upgrade", "--help")) == options(
        printed(SCRIPT, "k8s", "upgrade", "--help")
    )
    assert printed(plugin, "--version") == printed(SCRIPT, "--version")
    mistake = subprocess.run([plugin, "no-such"], capture_output=True, text=True, check=False)
    assert (mistake.returncode, mistake.stdout) == (2, "")
    assert "no-such" in mistake.stderr


def test_kubectl_finds_the_plugin() -> None:
    kubectl = shutil.which(
        "kubectl", path=os.pathsep.join([os.environ.get("KUBEBUILDER_ASSETS", ""), os.environ["PATH"]])
    )
    if kubectl is None:
        pytest.skip("there is no kubectl on PATH or in KUBEBUILDER_ASSETS")
    environment = {**os.environ, "PATH": os.pathsep.join([str(SCRIPT.parent), os.environ["PATH"]])}
    done = subprocess.run(
        [kubectl, "waltz", "--version"], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.startswith("waltz ")


@pytest.mark.parametrize(("arguments", "command"), [([], "local"), (["zk"], "create")])
def test_a_command_without_its_sub_command_prints_the_help_as_it_is(
    arguments: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    *text, last = err.splitlines()
    assert "Commands:" in text
    assert any(line.startswith(f"  {command} ") for line in text)
    assert last == "Error: a sub-command is missing"
