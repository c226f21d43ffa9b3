"""`waltz disk` on directories that release 0.13.2 wrote, sound and damaged."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from waltz_runtime.exit_code import ExitCode
from waltz_storage.engine.storage_manager import StorageManager
from waltz_tools.__main__ import run

GOLDEN = Path(__file__).parents[3] / "tests" / "interop" / "golden" / "storage"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A copy of a recorded directory with three segments in partitions 2 and 3."""
    return Path(shutil.copytree(GOLDEN / "node1", tmp_path / "node1"))


def _json(
    capsys: pytest.CaptureFixture[str], *arguments: object, code: int = ExitCode.OK
) -> list[dict[str, object]]:
    capsys.readouterr()
    assert run(["disk", *map(str, arguments), "--output", "json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def _segments(node: Path, partition: int) -> list[Path]:
    return sorted((node / str(partition)).glob("*.seg"))


def _flip(path: Path, offset: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 1
    path.write_bytes(raw)


def _contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(directory.rglob("*")) if p.is_file()
    }


def test_zookeeper_6_23_disk_commands_change_nothing_and_read_every_segment(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a segment that is torn, where the start of a node would cut."""
    torn = _segments(node, 3)[-1]
    torn.write_bytes(torn.read_bytes()[:-3])
    before = _contents(node)
    segments = [path for partition in (2, 3) for path in _segments(node, partition)]
    assert len(segments) > 4
    for path in segments:
        degraded = ExitCode.DEGRADED if path == torn else ExitCode.OK
        shown = _json(capsys, "dump-segment", "-m", "-r", path, code=degraded)
        first = shown[0]["first_transaction"]
        assert isinstance(first, int)
        assert [each["transaction"] for each in shown[1:]] == list(range(first, first + len(shown) - 1))
        assert shown[1:]
        assert run(["disk", "verify-segment", str(path)]) == degraded
        assert run(["disk", "segment-statistic", str(path)]) == ExitCode.OK
    assert run(["disk", "dump-control-file", str(node)]) == ExitCode.OK
    assert run(["disk", "check", str(node)]) == ExitCode.DEGRADED
    assert _contents(node) == before


def test_the_control_file_is_shown(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (everything,) = _json(capsys, "dump-control-file", node / "waltz-storage.ctl")
    entries = everything["partitions"]
    assert isinstance(entries, list)
    assert [entry["partition"] for entry in entries] == [0, 1, 2, 3]
    assert all(entry["problem"] is None for entry in entries)
    (one,) = _json(capsys, "dump-control-file", "-p", 2, node)
    assert one["partitions"] == [entries[2]]
    for wanted in (True, False):
        (some,) = _json(capsys, "dump-control-file", "-a", str(wanted).lower(), node)
        assert some["partitions"] == [entry for entry in entries if entry["assigned"] is wanted]


def test_a_damaged_control_entry_is_named(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control = node / "waltz-storage.ctl"
    for place in (4, 40):
        _flip(control, 128 + 76 + place)
    (shown,) = _json(capsys, "dump-control-file", node, code=ExitCode.DEGRADED)
    entries = shown["partitions"]
    assert isinstance(entries, list)
    assert "partition 1" in entries[1]["problem"]
    assert entries[0]["problem"] is None


def test_one_record_and_a_deserializer(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _segments(node, 2)[1]
    first = int(path.stem)
    (record,) = _json(capsys, "dump-segment", "-r", "-t", first + 1, path)
    assert record["transaction"] == first + 1
    (text,) = _json(capsys, "dump-segment", "-r", "-t", first + 1, "-d", "builtins:len", path)
    assert text["data"] == str(len(str(record["data_hex"])) // 2)
    assert run(["disk", "dump-segment", "-r", "-t", "99", str(path)]) == ExitCode.FAILED
    assert "holds" in capsys.readouterr().err
    assert run(["disk", "verify-segment", "-t", "99", str(path)]) == ExitCode.FAILED
    assert "has no whole record of transaction 99: it holds" in capsys.readouterr().err
    assert run(["disk", "dump-segment", "-r", "-d", "math:sqrt", str(path)]) == ExitCode.FAILED
    assert f"Error: the deserializer failed at transaction {first}: TypeError" in capsys.readouterr().err
    assert run(["disk", "dump-segment", "-r", "-d", "nowhere:nothing", str(path)]) == ExitCode.USAGE
    assert run(["disk", "dump-segment", str(path)]) == ExitCode.USAGE
    assert run(["disk", "dump-segment", "-r", str(path)]) == ExitCode.OK
    assert f"transaction {first}  client" in capsys.readouterr().out


def test_a_broken_record_in_the_middle_does_not_hide_what_follows(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _segments(node, 2)[0]
    assert run(["disk", "verify-segment", str(path)]) == ExitCode.OK
    _flip(path, 128 + 10)  # in the first record
    (shown,) = _json(capsys, "verify-segment", path, code=ExitCode.DEGRADED)
    assert "transaction 0 is broken" in str(shown["failures"])
    assert len(shown["failures"]) == 1  # type: ignore[arg-type]
    _flip(path, path.stat().st_size - 1)  # and in the last one
    (shown,) = _json(capsys, "verify-segment", path, code=ExitCode.DEGRADED)
    assert len(shown["failures"]) == 2  # type: ignore[arg-type]


def test_an_index_that_leads_elsewhere_is_found(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _segments(node, 2)[0]
    _flip(path.with_suffix(".idx"), 128 + 8 * 2 - 1)
    (shown,) = _json(capsys, "verify-segment", path, code=ExitCode.DEGRADED)
    assert "transaction 1 is at byte" in str(shown["failures"])
    assert _json(capsys, "verify-segment", "-t", 2, path)[0]["failures"] == []
    path.with_suffix(".idx").unlink()
    (shown,) = _json(capsys, "verify-segment", path, code=ExitCode.DEGRADED)
    assert "is missing" in str(shown["failures"])


def test_statistics(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _segments(node, 2)[0]
    (shown,) = _json(capsys, "segment-statistic", path)
    records = _json(capsys, "dump-segment", "-r", path)
    lengths = [len(str(record["data_hex"])) // 2 for record in records]
    assert (shown["records"], shown["max"], shown["min"]) == (len(lengths), max(lengths), min(lengths))


@pytest.mark.parametrize("command", ["dump-segment", "verify-segment", "segment-statistic"])
def test_what_is_no_segment_is_one_clear_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, short, absent = tmp_path / "x.txt", tmp_path / "1.seg", tmp_path / "2.seg"
    wrong.write_bytes(b"text")
    short.write_bytes(b"too short")
    for path in (wrong, short, absent):
        options = ["-r"] if command == "dump-segment" else []
        assert run(["disk", command, *options, str(path)]) == ExitCode.FAILED
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert str(path) in error


def test_a_directory_in_use_is_not_reset_and_a_dry_run_says_so(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["storage", "restore-reset", str(node), "--dry-run"]
    assert run(command) == ExitCode.OK
    assert capsys.readouterr().out.startswith("would reset partitions ")
    holder = (
        "import fcntl,sys\nf=open(sys.argv[1],'r+b')\nfcntl.lockf(f,fcntl.LOCK_EX,128)\nprint(1,flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(node / "waltz-storage.ctl")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for arguments in (command, [*command[:-1], "--yes"]):
            assert run(arguments) == ExitCode.FAILED
            assert "another process is using this directory" in capsys.readouterr().err
        process.communicate()


def test_a_file_of_another_name_is_no_control_file(node: Path) -> None:
    assert run(["disk", "dump-control-file", str(node / "0" / "x.ctl")]) == ExitCode.USAGE
    assert run(["disk", "dump-control-file", str(node / "0")]) == ExitCode.FAILED


def test_settle_brings_a_crashed_directory_into_the_plain_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lock of a node that runs is respected; without a journal there is nothing to do."""
    directory = tmp_path / "node"
    directory.mkdir()
    crashed = _crashed_with_a_journal(directory)
    header = (directory / "waltz-storage.ctl").read_bytes()[:128]
    assert run(["disk", "dump-control-file", str(directory)]) == ExitCode.OK
    assert "the files may lack what is in the node's journal" in capsys.readouterr().out
    assert run(["disk", "settle", str(directory)]) == ExitCode.OK
    assert "changes of the journal are in the files now" in capsys.readouterr().out
    assert (directory / "waltz-storage.ctl").read_bytes()[:128] != header
    assert run(["disk", "settle", str(directory)]) == ExitCode.OK
    assert (
        capsys.readouterr().out
        == "nothing was left in a journal; copies that were opened and closed in order: 1\n"
    )
    manager = StorageManager.open(str(directory), cluster_key=UUID(int=7), num_partitions=2, now_ms=lambda: 0)
    assert manager.get(1).max_txid == crashed
    manager.close()
    assert run(["disk", "settle", str(tmp_path)]) == ExitCode.FAILED
    assert "there is no waltz-storage.ctl here" in capsys.readouterr().err


def test_a_journal_that_is_still_to_be_released_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise OSError(5, "Input/output error")

    directory = tmp_path / "node"
    directory.mkdir()
    _crashed_with_a_journal(directory)
    monkeypatch.setattr("waltz_storage.engine.journal.directory.release_journal", killed)
    assert run(["disk", "settle", str(directory)]) == ExitCode.FAILED
    assert run(["disk", "settle", str(directory)]) == ExitCode.FAILED
    assert "its journal cannot be released: Input/output error" in capsys.readouterr().err
    monkeypatch.undo()
    assert run(["disk", "dump-control-file", str(directory)]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "cluster key 00000000-0000-0000-0000-000000000007" in shown
    assert "the files lack nothing, and the node's journal is still to be released" in shown
    assert f"`waltz disk settle {directory}` does that" in shown
    assert run(["disk", "check", str(directory)]) == ExitCode.OK
    assert run(["disk", "settle", str(directory)]) == ExitCode.OK
    assert run(["disk", "dump-control-file", str(directory)]) == ExitCode.OK
    assert "released" not in capsys.readouterr().out


def test_settle_names_the_partitions_whose_files_were_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy is damaged from then on, also when its directory is put back."""
    directory = tmp_path / "node"
    directory.mkdir()
    manager = StorageManager.open(str(directory), cluster_key=UUID(int=7), num_partitions=2, now_ms=lambda: 0)
    manager.assign(1).set_low_water_mark(1, -1)
    manager.close()
    _crashed_with_a_journal(directory)
    (directory / "1").rename(tmp_path / "away")
    assert run(["disk", "settle", str(directory), "--output", "json"]) == ExitCode.DEGRADED
    captured = capsys.readouterr()
    assert "0.13.2 would open them as they are" in captured.err
    shown = json.loads(captured.out)
    assert shown["lacking"] == [1]
    assert shown["closed"] == []
    assert list(shown["damaged"]) == ["1"]
    assert "files of partition 1 were missing" in captured.err
    (tmp_path / "away").rename(directory / "1")
    assert run(["disk", "check", str(directory)]) == ExitCode.DEGRADED
    assert "it lacks records" in capsys.readouterr().err


def test_settle_ends_what_a_killed_node_had_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also without a journal; a damaged copy is named, and the others are closed in order."""
    manager = StorageManager.open(str(tmp_path), cluster_key=UUID(int=7), num_partitions=2, now_ms=lambda: 0)
    for partition_id in (0, 1):
        manager.assign(partition_id).set_low_water_mark(1, -1)
    manager.close()
    (tmp_path / "0" / "0000000000000000012.idx").write_bytes(b"")
    assert run(["disk", "settle", str(tmp_path)]) == ExitCode.OK
    assert (
        capsys.readouterr().out
        == "nothing was left in a journal; copies that were opened and closed in order: 2\n"
    )
    assert not (tmp_path / "0" / "0000000000000000012.idx").exists()
    (tmp_path / "1" / "0000000000000000000.seg").unlink()
    assert run(["disk", "settle", str(tmp_path)]) == ExitCode.DEGRADED
    captured = capsys.readouterr()
    assert "closed in order: 1" in captured.out
    assert "partition 1 is damaged" in captured.err


CRASH = """
import sys
from uuid import UUID
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.layout import RecordBatch
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.engine.layout import wire_to_disk
import struct, zlib, os
manager = StorageManager.open(sys.argv[1], cluster_key=UUID(int=7), num_partitions=2, now_ms=lambda: 0,
    journal=JournalSettings(None, 1 << 20, 3), journal_id=UUID(int=9))
partition = manager.assign(1)
for txid in range(5):
    raw = struct.pack(">qiiiiii", txid, 7, 1, 1, txid + 1, 0, 3) + b"abc" + struct.pack(">I", zlib.crc32(b"abc"))
    partition.append([wire_to_disk(raw, 0, 1).batch])
    manager.commit()
os._exit(9)
"""


def _crashed_with_a_journal(directory: Path) -> int:
    """A directory whose node ended without closing it; the last transaction of partition 1."""
    done = subprocess.run([sys.executable, "-c", CRASH, str(directory)], check=False)
    assert done.returncode == 9
    return 4
