"""`--version`, and what commands say where the extra that they need is not installed."""

import importlib.util
import sys
from pathlib import Path

import pytest

from waltz_runtime.command import version_line
from waltz_tools.__main__ import run
from waltz_tools.errors import ToolError
from waltz_tools.local.cluster import LocalCluster, LocalSettings


def test_the_version_is_that_of_the_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"{version_line('waltz')}\n"


def test_without_the_storage_node_the_files_of_one_are_not_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "waltz_storage"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "waltz_storage", None)
    assert run(["disk", "check", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        "Error: this command reads the files of a storage node with waltz-storage, which is not installed: "
        "install waltz-tools with its extra disk (docs/install.md)\n"
    )


async def test_without_the_services_no_local_cluster_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ToolError, match=r"a local cluster needs .*: install waltz-tools with its extra local"
    ):
        await LocalCluster(LocalSettings(tmp_path / "cluster")).start()
    assert not (tmp_path / "cluster").exists()
