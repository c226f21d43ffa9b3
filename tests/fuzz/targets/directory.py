"""A whole storage directory, changed in any way and opened: never a crash, never a repair that loses what was
synced.

First byte: the directory to start from. Second: before which system call the first opening is stopped (0 =
not at all). Third: what survives of that, and by its bits how the opening ends that all others are compared
with (0), whether a record is appended then (1), and whether tools look at the directory first (2). Then
changes (`directory_edits`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from tests.fuzz.directory_bases import PARTITIONS, ROOT, Files, bases, batch
from tests.fuzz.directory_edits import CONTROL, SIDECAR, Script, apply
from tests.fuzz.directory_truth import DATA, LogTruth, read_truth, segments_anywhere
from tests.fuzz.disk_form import HEADER, sidecar_fence
from tests.fuzz.target import Target
from waltz_storage.engine.control_file import MAX_PARTITIONS
from waltz_storage.engine.errors import PartitionDamagedError, StorageError, StorageStartError
from waltz_storage.engine.inspect import inspect_directory
from waltz_storage.engine.layout import disk_to_wire
from waltz_storage.engine.partition import EngineSettings, Partition
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk
from waltz_testkit.stored_records import iterate_records


class Outcome(NamedTuple):
    """What an opening came to: last TXID of each open partition, refused partitions; None = did not start."""

    open: dict[int, int]
    refused: tuple[int, ...]


def check(data: bytes) -> None:
    script = Script(data)
    files = dict(bases()[script.number() % len(bases())])
    key = UUID(bytes=files[CONTROL][12:28])
    crash_before, mode = script.number(), script.number()
    apply(files, script)
    if mode & 4:
        _look(files)
    disk = _disk(files)
    outcome, manager = _opened(disk, key, files)
    if manager is None:
        left = disk.files()
        if left.get(CONTROL) == b"":
            left.pop(CONTROL)  # made to be locked; an empty one says the same as none
        assert left == {name: raw for name, raw in files.items() if raw or name != CONTROL}, (
            "refused and changed"
        )
        return
    after = disk.files()
    _again(disk, key, outcome, manager, CrashMode.LOSE if mode & 1 else CrashMode.KEEP)
    _compare_files(after, disk.files())
    if crash_before:
        crashed = _crashed(files, key, crash_before - 1, random.Random(mode))
        again, second = _opened(crashed, key, files)
        assert again == outcome, f"an interrupted opening ends as {again}, one in peace as {outcome}"
        assert second is not None
        second.close()
    if mode & 2:
        _append_one(disk, key)


def _disk(files: Files) -> FaultyDisk:
    disk = FaultyDisk()
    disk.add_dir(ROOT)
    for name in sorted({name.rsplit("/", 1)[0] for name in files} - {ROOT}):
        disk.add_dir(name)
    for name, raw in files.items():
        disk.put(name, raw)
    return disk


def _open(disk: FaultyDisk, key: UUID) -> StorageManager:
    return StorageManager.open(
        ROOT,
        cluster_key=key,
        num_partitions=PARTITIONS,
        now_ms=lambda: 2,
        settings=EngineSettings(4000, 2),
        fs=disk,
    )


def _opened(disk: FaultyDisk, key: UUID, files: Files) -> tuple[Outcome | None, StorageManager | None]:
    """Open, and compare with what the files said before."""
    try:
        manager = _open(disk, key)
    except StorageStartError:
        return None, None
    if segments_anywhere(files):
        truth = read_truth(files)
        for partition_id, partition in manager.partitions.items():
            _nothing_lost(partition, truth[partition_id], disk)
        for partition_id in manager.damaged:
            _nothing_touched(files, disk, partition_id)
    return _outcome(manager), manager


def _outcome(manager: StorageManager) -> Outcome:
    return Outcome(
        {partition_id: partition.max_txid for partition_id, partition in sorted(manager.partitions.items())},
        tuple(sorted(manager.damaged)),
    )


def _nothing_lost(partition: Partition, truth: LogTruth, disk: FaultyDisk) -> None:
    assert not truth.must_refuse, "damage in the middle was taken for a torn tail"
    last = partition.max_txid
    assert last >= truth.at_least, f"ends at {last}, {truth.at_least} was there"
    wire: dict[int, bytes] = {}
    for name, found in sorted(truth.valid.items()):
        content = b"".join(found)
        if not content and not disk.exists(name):
            continue
        assert disk.content(name)[HEADER:].startswith(content), f"{name} lost a valid record"
        for record in found:
            wire[int.from_bytes(record[:8], "big")] = disk_to_wire(record, int.from_bytes(record[:8], "big"))[
                0
            ]
    txid = 0
    while txid <= last:
        try:
            records = partition.read(txid, 100, 1 << 16)
        except PartitionDamagedError:
            txid += 1
            continue
        assert records, f"{txid} is not there, {last} is the last"
        for record in records:
            assert int.from_bytes(record[:8], "big") == txid
            assert txid not in wire or wire[txid] == record, f"another record {txid}"
            txid += 1
    assert partition.read(last + 1, 10, 1 << 16) == []


def _nothing_touched(files: Files, disk: FaultyDisk, partition_id: int) -> None:
    prefix = f"{ROOT}/{partition_id}/"
    for name, raw in files.items():
        if name.startswith(prefix) and name.endswith(DATA) and len(raw) > HEADER:
            assert disk.content(name) == raw, f"{name} was changed although the partition is refused"


def _again(
    disk: FaultyDisk, key: UUID, outcome: Outcome | None, manager: StorageManager, mode: CrashMode
) -> None:
    if mode is CrashMode.KEEP:
        manager.close()
    disk.restart(mode)
    second = _open(disk, key)
    assert _outcome(second) == outcome, f"first {outcome}, then {_outcome(second)}"
    second.close()


def _compare_files(first: Files, second: Files) -> None:
    assert first.keys() == second.keys()
    for name, raw in first.items():
        if not name.endswith(SIDECAR):
            assert second[name] == raw, f"{name} changed when opened a second time"
        else:
            partition_id = int(name.split("/")[-2])
            assert sidecar_fence(second[name], partition_id) == sidecar_fence(raw, partition_id)


def _crashed(files: Files, key: UUID, crash_before: int, rng: random.Random) -> FaultyDisk:
    disk = _disk(files)
    disk.crash_before = crash_before
    try:
        _open(disk, key)
    except (CrashError, StorageStartError):
        pass
    disk.restart(rng.choice(list(CrashMode)), rng)
    return disk


def _append_one(disk: FaultyDisk, key: UUID) -> None:
    """What opens also works: one record more, and the power goes."""
    manager = _open(disk, key)
    wanted = {}
    for partition_id, partition in manager.partitions.items():
        before = partition.max_txid
        (refused,) = partition.append([batch(before + 1, 1)])
        assert refused is None, f"an opened partition takes no record: {refused}"
        wanted[partition_id] = before + 1
    disk.restart(CrashMode.LOSE)
    again = _open(disk, key)
    assert {p: partition.max_txid for p, partition in again.partitions.items()} == wanted
    again.close()


def _look(files: Files) -> None:
    """Tools look at any directory."""
    if 200 < int.from_bytes(files.get(CONTROL, b"")[28:32], "big") <= MAX_PARTITIONS:
        return  # believed, and looked at one by one: slow, but bounded
    disk = _disk(files)
    try:
        inspect_directory(ROOT, fs=disk)
    except StorageError:
        return
    for partition_id in range(PARTITIONS):
        if disk.is_dir(f"{ROOT}/{partition_id}"):
            try:
                count = sum(1 for _ in iterate_records(ROOT, partition_id, fs=disk))
            except StorageError:
                continue
            assert count >= 0
    assert disk.files() == files, "looking changed something"


def seeds() -> Iterator[bytes]:
    for number in range(len(bases())):
        yield bytes((number, 0, 6))
        yield bytes((number, 9, 3))
        yield bytes((number, 0, 3, 2, 3, 1, 0, 30))  # cut the third file 120 bytes before its end
        yield bytes((number, 5, 1, 1, 4, 1, 0, 20, 3))  # one bit near the end
        yield bytes((number, 0, 4, 3, 1, 2, 0, 9, 1, 10, 1, 0, 0, 3))  # zeros, signed, records added
        yield bytes((number, 3, 2, 11, 0, 0, 5, 0, 7, 0, 7, 5, 1))  # other marks
        yield bytes((number, 0, 1, 7, 3, 1, 1, 0, 10, 3, 0, 1, 1, 2))  # a lost sector, then records
        yield bytes((number, 2, 0, 5, 2, 6, 1, 2, 8, 1, 0, 3, 1))  # files lost, swapped, new


TARGET = Target(
    check,
    seeds,
    memory_bytes=32 << 20,
    memory_factor=4096,
    max_input_bytes=512,
)
