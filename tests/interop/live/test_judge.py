"""The judge of the live suite notices each thing it is there for. Needs no release."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.interop.live.judge import violations
from tests.interop.live.loads import Known
from tests.interop.live.segments import Entry

PAYLOADS = ("ours-1/0/0.0/3/-1", "java-1/0/0.0/3/0", "ours-1/0/1.0/4/-1")

Logs = dict[int, dict[str, list[Entry]]]


def clean() -> tuple[Logs, Known]:
    """Two replicas with three records, which their writers know."""
    entries = [Entry(place, bytes(16), 0, payload.encode()) for place, payload in enumerate(PAYLOADS)]
    known = Known(
        set(PAYLOADS),
        {PAYLOADS[0]: (0, 0), PAYLOADS[1]: None},
        {"ours-1/0/2.0/4/2"},
        {(0, place): {payload} for place, payload in enumerate(PAYLOADS)},
    )
    return {0: {"s1": entries, "s2": list(entries)}}, known


def test_what_is_right_is_right() -> None:
    logs, known = clean()
    assert violations(logs, known, false_failures=False) == []


def put(logs: Logs, place: int, payload: str) -> None:
    """The same change on every replica."""
    for records in logs[0].values():
        records[place : place + 1] = [Entry(place, bytes(16), 0, payload.encode())]


def fork(logs: Logs, known: Known) -> None:
    logs[0]["s2"][1] = replace(logs[0]["s2"][1], request_id=bytes(15) + b"\1")


def short(logs: Logs, known: Known) -> None:
    del logs[0]["s2"][2]


def lost(logs: Logs, known: Known) -> None:
    known.sent.add("java-1/0/7.0/0/-1")
    known.acknowledged["java-1/0/7.0/0/-1"] = None


def moved(logs: Logs, known: Known) -> None:
    known.acknowledged[PAYLOADS[0]] = (0, 1)


def twice(logs: Logs, known: Known) -> None:
    put(logs, 3, PAYLOADS[2])


def stranger(logs: Logs, known: Known) -> None:
    put(logs, 3, "nobody/0/0.0/0/-1")


def failed(logs: Logs, known: Known) -> None:
    known.failed.add(PAYLOADS[2])


def misread(logs: Logs, known: Known) -> None:
    known.deliver(0, 1, PAYLOADS[0])


def beyond(logs: Logs, known: Known) -> None:
    known.deliver(0, 3, PAYLOADS[2])


def lost_update(logs: Logs, known: Known) -> None:
    known.sent.add("java-1/0/9.0/3/0")
    put(logs, 3, "java-1/0/9.0/3/0")


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (fork, "fork"),
        (short, "does not end at the same record"),
        (lost, "lost"),
        (moved, "moved"),
        (twice, "twice"),
        (stranger, "never sent"),
        (failed, "failed but present"),
        (misread, "readers were given"),
        (beyond, "readers were given"),
        (lost_update, "lost update"),
    ],
)
def test_what_is_wrong_is_noticed(damage: Callable[[Logs, Known], None], word: str) -> None:
    logs, known = clean()
    damage(logs, known)
    assert any(word in line for line in violations(logs, known, false_failures=False))
