"""Events: news is told once in a while, and never stops anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operator_tests.kube.unused import UnusedKube
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeError, KubeForbiddenError
from waltz_operator.run.events import MAX_NOTE_BYTES, QUIET_SECONDS, EventWriter

ABOUT = {"kind": "WaltzCluster", "name": "ledger", "namespace": "demo", "uid": "u1"}


class Told(UnusedKube):
    """Keeps what was created. `error`: every call ends with it."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.error: KubeError | None = None

    async def create(self, obj: Mapping[str, Any]) -> Object:
        if self.error is not None:
            raise self.error
        self.events.append(obj)
        return dict(obj)


class Stage:
    """A writer, its server, and its clock."""

    def __init__(self) -> None:
        self.kube = Told()
        self.now = 1_000_000.0
        self.writer = EventWriter(self.kube, lambda: self.now, "pod-1")

    async def emit(
        self, reason: str = "Restarting", text: str = "a text", uid: str = "u1", at: str = ""
    ) -> bool:
        return await self.writer.emit({**ABOUT, "uid": uid}, reason, text, "Warning", at=at)


async def test_it_says_what_about_which_object_and_who_says_so() -> None:
    stage = Stage()
    assert await stage.emit()
    (event,) = stage.kube.events
    assert event["regarding"] == ABOUT
    assert event["metadata"]["namespace"] == "demo"
    assert (event["reason"], event["note"], event["type"]) == ("Restarting", "a text", "Warning")
    assert event["reportingInstance"] == "pod-1"
    assert event["eventTime"].endswith("Z")


async def test_the_same_news_is_told_again_only_after_a_while() -> None:
    stage = Stage()
    assert await stage.emit()
    stage.now += QUIET_SECONDS - 1
    assert not await stage.emit()
    stage.now += 2
    assert await stage.emit()
    assert len(stage.kube.events) == 2


async def test_other_news_and_the_same_of_another_object_are_told() -> None:
    stage = Stage()
    assert await stage.emit()
    assert await stage.emit(reason="DiskLost")
    assert await stage.emit(text="another text")
    assert await stage.emit(uid="u2")


async def test_what_could_not_be_written_is_told_the_next_time() -> None:
    stage = Stage()
    stage.kube.error = KubeForbiddenError("not permitted")
    assert not await stage.emit()
    stage.kube.error = None
    assert await stage.emit()


async def test_a_long_text_is_cut_between_characters() -> None:
    stage = Stage()
    await stage.emit(text="ä" * MAX_NOTE_BYTES)
    note = stage.kube.events[0]["note"]
    assert set(note) == {"ä"}
    assert len(note.encode()) <= MAX_NOTE_BYTES


async def test_what_is_remembered_is_bounded() -> None:
    stage = Stage()
    for number in range(3000):
        await stage.emit(text=str(number))
    assert len(stage.writer._told) <= 2048
    assert await stage.emit(text="0"), "the oldest was not the one that was forgotten"
    assert not await stage.emit(text="2999")


async def test_the_same_loss_at_another_time_is_reported_again() -> None:
    stage = Stage()
    assert await stage.emit(at="10:00")
    assert not await stage.emit(at="10:00")
    assert await stage.emit(at="10:01")
