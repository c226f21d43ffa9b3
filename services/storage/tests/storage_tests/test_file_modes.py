"""What a node makes is readable by its user alone, whatever the umask is."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from waltz_storage.__main__ import close_directory
from waltz_storage.engine.errors import StorageStartError
from waltz_storage.engine.layout import CONTROL_FILE_NAME, SIDECAR_NAME, WITNESS_NAME
from waltz_storage.engine.partition import EngineSettings
from waltz_storage.engine.restore_reset import reset_for_restore
from waltz_storage.engine.storage_manager import StorageManager

from .support import KEY, append, now_ms


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def opened(directory: Path) -> StorageManager:
    return StorageManager.open(
        str(directory), cluster_key=KEY, num_partitions=2, now_ms=now_ms, settings=EngineSettings(300)
    )


def used(directory: Path) -> None:
    manager = opened(directory)
    partition = manager.assign(1)
    partition.raise_fence(3)
    partition.set_low_water_mark(3, -1)
    append(partition, 0, 6)
    manager.close()


def modes(directory: Path) -> dict[str, int]:
    return {
        str(path.relative_to(directory)): stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*")
    }


def assert_private(directory: Path) -> None:
    found = modes(directory)
    names = {Path(name).name for name in found}
    assert {CONTROL_FILE_NAME, WITNESS_NAME, SIDECAR_NAME, "1"} < names
    assert {Path(name).suffix for name in found} == {".ctl", ".seg", ".idx", ""}
    for name, mode in found.items():
        assert mode == (0o700 if (directory / name).is_dir() else 0o600), name


def test_everything_a_node_makes_is_its_users_alone(umask: int, tmp_path: Path) -> None:
    used(tmp_path)
    assert_private(tmp_path)
    reset_for_restore(str(tmp_path))
    assert_private(tmp_path)


def test_files_that_were_wider_are_closed_when_they_are_opened(umask: int, tmp_path: Path) -> None:
    """As release 0.13.2 left them."""
    used(tmp_path)
    for name in modes(tmp_path):
        if (tmp_path / name).is_file():
            (tmp_path / name).chmod(0o644)
    opened(tmp_path).close()
    assert_private(tmp_path)


@pytest.mark.parametrize(
    ("before", "after"), [(0o777, 0o770), (0o755, 0o750), (0o2775, 0o2770), (0o700, 0o700)]
)
def test_a_directory_that_was_given_is_closed_to_all_but_the_group(
    before: int, after: int, tmp_path: Path
) -> None:
    """The group is how a pod of Kubernetes gets at its volume (fsGroup)."""
    tmp_path.chmod(before)
    close_directory(str(tmp_path))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == after


def test_what_belongs_to_another_user_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used(tmp_path)
    (tmp_path / CONTROL_FILE_NAME).chmod(0o664)
    tmp_path.chmod(0o775)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    close_directory(str(tmp_path))
    opened(tmp_path).close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o775
    assert modes(tmp_path)[CONTROL_FILE_NAME] == 0o664


def test_a_directory_that_is_not_there_is_said_by_whoever_opens_it(tmp_path: Path) -> None:
    close_directory(str(tmp_path / "missing"))


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.EROFS])
def test_a_file_system_that_refuses_modes_is_named_once_and_used(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As CIFS, FUSE and NFS may be: the node did not start on files of release 0.13.2."""
    used(tmp_path)
    for name in modes(tmp_path):
        (tmp_path / name).chmod(0o777)

    def refused(_fd: int, _mode: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fchmod", refused)
    with capture_logs() as lines:
        manager = opened(tmp_path)
    assert manager.damaged == {}
    append(manager.get(1), 6, 1)
    manager.close()
    said = [line for line in lines if "other users" in line["event"]]
    assert [(line["log_level"], line["reason"]) for line in said] == [("warning", os.strerror(code))]
    assert said[0]["path"].startswith(str(tmp_path))


def test_a_mode_that_cannot_be_set_for_another_reason_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used(tmp_path)
    (tmp_path / CONTROL_FILE_NAME).chmod(0o666)

    def broken(_fd: int, _mode: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fchmod", broken)
    with pytest.raises(StorageStartError, match="Input/output error"):
        opened(tmp_path)
