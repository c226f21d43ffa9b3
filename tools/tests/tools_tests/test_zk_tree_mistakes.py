"""A person's mistakes with `waltz zk export`, `import` and `rebuild`: one line each."""

from pathlib import Path

import pytest

from tools_tests.test_cli import _one_error, config, zookeeper  # noqa: F401
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_runtime.exit_code import ExitCode
from waltz_tools.__main__ import run

KEY = "00000000-0000-0000-0000-000000000001"
REBUILD = ["zk", "rebuild", "-n", "d", "-k", KEY, "-p", "1", "--copies", "1", "--yes"]
CONFIG = """\
zookeeper.connectString: nowhere:1
cluster.root: {root}
ssl.enabled: false
"""


@pytest.mark.parametrize("file", [".", "/", ".."])
def test_export_to_a_directory(
    file: str,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["zk", "export", "-c", str(config), file]) == ExitCode.FAILED
    assert "is a directory" in _one_error(capsys)


@pytest.mark.parametrize("content", [b"[" * 200_000, b"\xff\xfe\x00", b"{}", b"null", b'{"format": NaN}'])
def test_import_of_odd_files(
    content: bytes,
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "odd.json"
    file.write_bytes(content)
    assert run(["zk", "import", "-c", str(config), str(file), "--yes"]) == ExitCode.FAILED
    assert "is no export of a cluster" in _one_error(capsys)


@pytest.mark.parametrize("root", ["/empty", "/nowhere"])
@pytest.mark.parametrize(
    "node",
    [
        "127.0.0.1:7000/70011/1",
        "127.0.0.1:7000/65536/1",
        "127.0.0.1:7000/0/1",
        "127.0.0.1:7000/7\u00b2/1",
        "127.0.0.1:7000/7001/-1",
        "127.0.0.1:7000/7001/99999999999",
    ],
)
def test_rebuild_with_a_typing_error(
    node: str,
    root: str,
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where nothing is, and where a cluster is."""
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.format(root=root))
    assert run([*REBUILD, "-c", str(file), "--node", node]) in (ExitCode.FAILED, ExitCode.USAGE)
    said = capsys.readouterr().err
    assert "unexpected" not in said
    assert "WALTZ_DEBUG" not in said


@pytest.mark.parametrize("root", ["/", "/nowhere/", "/none", "/none/deeper", "nowhere", "//nowhere"])
def test_export_of_odd_roots(
    root: str,
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.format(root=root))
    assert run(["zk", "export", "-c", str(file), str(tmp_path / "out.json")]) != ExitCode.OK
    assert "unexpected" not in capsys.readouterr().err
