"""What `waltz zk import` and `rebuild` show before they ask."""

import json
import sys
from pathlib import Path

import pytest

from tools_tests.test_cli import zookeeper  # noqa: F401
from tools_tests.test_transactions import Terminal
from tools_tests.test_zk_tree_mistakes import CONFIG, KEY
from waltz_admin.rebuild_tree import RebuiltTree
from waltz_admin.tree_file import decode
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_runtime.exit_code import ExitCode
from waltz_tools.__main__ import run
from waltz_tools.cli import zk_tree


@pytest.mark.parametrize("command", ["import", "rebuild"])
def test_what_is_asked_about_is_shown_with_the_question(
    command: str,
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On standard error: standard output has the result, as JSON one object. Nothing of it is shown where
    nobody can answer."""
    config = tmp_path / "c.yaml"
    config.write_text(CONFIG.format(root="/nowhere"))
    file = tmp_path / "tree.json"
    assert run(["zk", "export", "-c", str(config), str(file)]) == ExitCode.OK
    capsys.readouterr()
    arguments = ["zk", command, "-c", str(config), "--output", "json"]
    if command == "import":
        arguments.append(str(file))
    else:
        arguments += ["-n", "demo", "-k", KEY, "-p", "2", "--copies", "1", "--node", "127.0.0.1:1/2/0"]
        tree = decode(file.read_bytes())

        async def rebuild_tree(*_: object, **__: object) -> RebuiltTree:
            return RebuiltTree(tree, (), (0, 1))

        monkeypatch.setattr(zk_tree, "rebuild_tree", rebuild_tree)
    assert run(arguments) == ExitCode.USAGE
    assert capsys.readouterr().out == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run(arguments) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["cluster"] == "demo"
    shown = terminal.getvalue()
    assert 0 < shown.index("demo") < shown.index("Continue?")
