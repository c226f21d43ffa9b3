"""`waltz storage restore-reset` and `lower-fence` on directories that are not what somebody believes,
and what reads storage directories on names that are no files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from waltz_admin import seeding
from waltz_admin.copies import NodePartition
from waltz_admin.keep_copy import KeptCopy
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import UNRESOLVED, PartitionId
from waltz_runtime.exit_code import ExitCode
from waltz_storage.engine.errors import StorageError
from waltz_storage.engine.fence_repair import read_fence
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.storage_manager import StorageManager
from waltz_tools.__main__ import run
from waltz_tools.cli import storage_repairs

from .test_cli import zookeeper  # noqa: F401
from .test_disk import _crashed_with_a_journal

OTHER_KEY = UUID(int=7)


def _files(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """A directory with partition 1, whose journal is lost."""
    directory = tmp_path / "node"
    directory.mkdir()
    _crashed_with_a_journal(directory)
    return directory


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_safety_a5_what_would_be_left_or_does_not_exist_is_said_before_anything_is_written(
    option: str, lost: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run says what the command would say."""
    shutil.move(lost / "waltz-journal", lost.parent / "elsewhere")
    before = _files(lost)
    command = ["storage", "restore-reset", str(lost), option]
    for partitions, text in (
        ("0", "its journal cannot be replayed (if it is elsewhere, pass --journal)"),
        ("1,9", "partition 9 does not exist: the cluster has 2"),
    ):
        assert run([*command, "-p", partitions]) == ExitCode.FAILED
        out, err = capsys.readouterr()
        assert out == ""
        assert text in err
        assert len(err.splitlines()) == 1
        assert _files(lost) == before
    elsewhere = ["--journal", str(lost.parent / "elsewhere")]
    assert run([*command, *elsewhere, "-p", "0"]) == ExitCode.OK
    assert "reset partitions 0 of" in capsys.readouterr().out


def test_safety_a5_a_reset_says_when_it_is_right_before_it_is_made(
    lost: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _files(lost)
    assert run(["storage", "restore-reset", str(lost)]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "until they have caught up with a majority that was not restored" in said
    assert "If a majority of the replicas is restored from copies, do not reset" in said
    assert _files(lost) == before


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "pass --storage with the node to give up, or --keep"),
        (["-s", "a:1", "--keep", "b:1"], "pass --storage with the node to give up, or --keep"),
        (["-s", "a:1", "--lost", "b:1"], "--lost belongs to --keep"),
        (["-s", "a:1"], "that only this replica still holds are lost forever: pass --accept-data-loss"),
        (["--keep", "a:1"], "that only other replicas still hold are lost forever: pass --accept-data-loss"),
    ],
)
def test_safety_a1_what_is_given_up_is_said_in_so_many_words(
    options: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["storage", "forget", "-c", str(tmp_path / "none.yaml"), "-p", "0"]
    assert run([*command, *options]) == ExitCode.USAGE
    assert text in capsys.readouterr().err


def test_a_reset_that_did_not_end_is_shown(
    lost: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise OSError(5, "Input/output error")

    assert run(["disk", "settle", str(lost)]) == ExitCode.OK
    monkeypatch.setattr("waltz_storage.engine.restore_reset.prepare_reset", killed)
    assert run(["storage", "restore-reset", str(lost), "--yes"]) == ExitCode.FAILED
    monkeypatch.undo()
    capsys.readouterr()
    assert run(["disk", "dump-control-file", str(lost)]) == ExitCode.OK
    assert f"a reset did not end: run `waltz storage restore-reset {lost}` again" in capsys.readouterr().out
    assert run(["disk", "settle", str(lost)]) == ExitCode.FAILED
    assert "a reset of its copies was begun and did not end" in capsys.readouterr().err
    assert run(["storage", "restore-reset", str(lost), "--yes"]) == ExitCode.OK


def own_cluster(zookeeper: MemoryZooKeeper, directory: Path) -> tuple[UUID, Path]:  # noqa: F811
    """A cluster whose partition 0 is in session 2: its key, and the configuration file of a command."""

    async def created() -> UUID:
        session = zookeeper.session()
        made = await seeding.create(session, "/own", "lab", 2)
        await StoreMetadata(session, "/own").create_partition(0, PartitionMetadata(1, 2, {}))
        return made.params.cluster_key

    config = directory / "own.yaml"
    config.write_text("zookeeper.connectString: nowhere:1\ncluster.root: /own\nssl.enabled: false\n")
    return asyncio.run(created()), config


def test_safety_b4_a_fence_is_lowered_by_the_word_of_its_own_cluster_only(
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Sessions of another cluster say nothing about those that were given out here."""

    key, config = own_cluster(zookeeper, tmp_path)
    for own in (True, False):
        directory, held = tmp_path / f"node-{own}", key if own else OTHER_KEY
        directory.mkdir()
        manager = StorageManager.open(str(directory), cluster_key=held, num_partitions=2, now_ms=lambda: 1)
        manager.assign(0).raise_fence(51)
        manager.close()
        for option in ("--dry-run", "--yes"):
            code = run(["storage", "lower-fence", "-c", str(config), str(directory), "-p", "0", option])
            out, err = capsys.readouterr()
            if own:
                assert code == ExitCode.OK, err
                assert "partition 0: 51 to 3" in out
            else:
                assert code == ExitCode.FAILED
                assert f"its key is {OTHER_KEY}, ZooKeeper has {key}" in err
        assert read_fence(str(directory), 0, held, 2)[0] == (3 if own else 51)


def test_the_fence_of_a_killed_node_is_lowered_with_its_journal_elsewhere(
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    key, config = own_cluster(zookeeper, tmp_path)
    running, directory, journal = tmp_path / "running", tmp_path / "node", tmp_path / "fast"
    running.mkdir()
    manager = StorageManager.open(
        str(running),
        cluster_key=key,
        num_partitions=2,
        now_ms=lambda: 1,
        journal=JournalSettings(str(journal), 1 << 16, 2),
        journal_id=uuid4(),
    )
    manager.assign(0).raise_fence(51)
    manager.commit()
    shutil.copytree(running, directory)  # as a kill leaves it
    before = {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()}
    command = ["storage", "lower-fence", "-c", str(config), str(directory), "-p", "0"]
    assert run([*command, "--journal", str(journal), "--dry-run"]) == ExitCode.FAILED
    assert f"`waltz disk settle {directory}` first, with --journal" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in before} == before
    assert run([*command, "--journal", str(journal), "--yes"]) == ExitCode.OK
    assert "lowered partition 0: 51 to 3" in capsys.readouterr().out
    assert run([*command, "--dry-run"]) == ExitCode.OK
    assert "no fence is too high" in capsys.readouterr().out
    with contextlib.suppress(StorageError):
        manager.close()


@pytest.mark.parametrize(("given_out", "fence"), [(40, 41), (80, 51), (1, 3)])
def test_safety_b4_sessions_that_are_given_out_while_the_question_is_open_stay_fenced_off(
    given_out: int,
    fence: int,
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """ZooKeeper has given out session 2 before; 1: it was restored meanwhile, and gives 2 out again."""
    config = tmp_path / "own.yaml"
    config.write_text("zookeeper.connectString: nowhere:1\ncluster.root: /own\nssl.enabled: false\n")

    async def set_session(number: int) -> UUID:
        session = zookeeper.session()
        made = await seeding.create(session, "/own", "lab", 2, exist_ok=True)
        metadata, written = StoreMetadata(session, "/own"), PartitionMetadata(1, number, {})
        if await metadata.never_started(0):
            await metadata.create_partition(0, written)
        else:
            await metadata.write_partition(0, written, (await metadata.read_partition(0))[1])
        return made.params.cluster_key

    key = asyncio.run(set_session(2))
    directory = tmp_path / "node"
    directory.mkdir()
    manager = StorageManager.open(str(directory), cluster_key=key, num_partitions=2, now_ms=lambda: 1)
    manager.assign(0).raise_fence(51)
    manager.close()

    def agreed(what: str, yes: bool) -> None:
        asyncio.run(set_session(given_out))

    monkeypatch.setattr("waltz_tools.cli.storage_repairs.confirm", agreed)
    assert run(["storage", "lower-fence", "-c", str(config), str(directory), "-p", "0"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert (f"lowered partition 0: 51 to {fence}" if fence < 51 else "no fence is too high") in out
    assert read_fence(str(directory), 0, key, 2)[0] == fence


@pytest.mark.parametrize("kind", ["a named pipe", "a directory"])
def test_what_is_not_a_regular_file_is_named_and_nothing_waits_for_it(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment, control = tmp_path / "0.seg", tmp_path / "node" / "waltz-storage.ctl"
    control.parent.mkdir()
    for path in (segment, control):
        path.mkdir() if kind == "a directory" else os.mkfifo(path)
    node = str(control.parent)
    for path, commands in (
        (
            segment,
            (["disk", "dump-segment", "-m"], ["disk", "verify-segment"], ["disk", "segment-statistic"]),
        ),
        (control, (["disk", "dump-control-file"], ["disk", "check"], ["disk", "settle"])),
        (control, (["storage", "restore-reset", "--dry-run"], ["storage", "restore-reset", "--yes"])),
    ):
        for command in commands:
            assert run([*command, str(segment) if path == segment else node]) == ExitCode.FAILED
            err = capsys.readouterr().err
            assert str(path) in err, command
            assert ("not a regular file" in err) or ("Is a directory" in err), command
            assert len(err.splitlines()) == 1


@pytest.mark.usefixtures("zookeeper")
def test_what_an_earlier_run_has_kept_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "own.yaml"
    config.write_text("zookeeper.connectString: nowhere:1\ncluster.root: /nowhere\nssl.enabled: false\n")
    zero, one = PartitionId(0), PartitionId(1)
    copy = NodePartition(zero, 9, 4, 4, True, True, 4)
    alone = {"a:1": ReplicaState(zero, "a:1", 9, UNRESOLVED)}
    done = KeptCopy(zero, "a:1", 4, 9, alone, {"a:1": copy, "b:1": copy}, "it is the log already")

    async def keep(*_: object, **__: object) -> list[KeptCopy]:
        return [done, replace(done, partition_id=one, already="")]

    monkeypatch.setattr(storage_repairs, "keep_copy", keep)
    command = ["storage", "forget", "-c", str(config), "--keep", "a:1", "-p", "0,1", "--accept-data-loss"]
    assert run([*command, "--output", "json"]) == ExitCode.OK
    rows = json.loads(capsys.readouterr().out)["partitions"]
    assert [(row["partition"], row["node"], row["what_becomes_of_it"]) for row in rows] == [
        (0, "a:1", "left as it is: it is the log already"),
        (1, "a:1", "kept: it is the log now"),
        (1, "b:1", "given up, and filled from it"),
    ]
