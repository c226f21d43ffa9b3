"""The transaction monitor against a simple model, over every short sequence of events and over random long
ones."""

import itertools
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from waltz_client._internal.append.transaction_monitor import (
    NEVER,
    Cause,
    MonitorEntry,
    Resolution,
    TransactionMonitor,
)

Event = tuple[str, int, int]
FAILED = "failed"
OK = "committed"


@dataclass
class Model:
    """The rules of the protocol written down as naively as possible: nothing is indexed, nothing is swept
    early."""

    hwm: int = -1
    registry: list[int] = field(default_factory=list)
    result: dict[int, str] = field(default_factory=dict)
    conflicts: list[tuple[int, int]] = field(default_factory=list)
    flushes: list[tuple[int, int]] = field(default_factory=list)

    def outstanding(self) -> int:
        return sum(1 for r in self.registry if r not in self.result)

    def _fail(self, r: int) -> None:
        self.result.setdefault(r, FAILED)

    def committed(self, r: int) -> None:
        if r not in self.registry:
            return
        index = self.registry.index(r)
        for older in self.registry[:index]:
            self._fail(older)
        self.result.setdefault(r, OK)
        del self.registry[: index + 1]

    def _flush(self, r: int) -> None:
        if r not in self.registry:
            return
        index = self.registry.index(r)
        for older in self.registry[: index + 1]:
            self._fail(older)
        del self.registry[: index + 1]

    def advance(self, hwm: int) -> None:
        self.hwm = hwm
        for mark, r in sorted(c for c in self.conflicts if c[0] <= hwm):
            self.conflicts.remove((mark, r))
            if r in self.registry:
                self._fail(r)
        while self.flushes and self.flushes[0][0] <= hwm:
            self._flush(self.flushes.pop(0)[1])

    def lock_failure(self, r: int, mark: int) -> None:
        if r not in self.registry or r in self.result:
            return
        if self.hwm >= mark:
            self._fail(r)
        else:
            self.conflicts.append((mark, r))

    def flush_response(self, r: int, mark: int) -> None:
        if self.hwm >= mark:
            self._flush(r)
        else:
            self.flushes.append((mark, r))


class Driver:
    """Runs the same events through both and compares after each."""

    def __init__(self) -> None:
        self.monitor = TransactionMonitor()
        self.model = Model()
        self.got: dict[int, str] = {}

    def _take(self, resolved: "tuple[Resolution, ...] | list[Resolution]") -> None:
        for entry, cause, _ in resolved:
            assert entry.seq_num not in self.got, "resolved twice"
            assert not entry.pending
            self.got[entry.seq_num] = OK if cause is Cause.COMMITTED else FAILED

    def apply(self, event: Event) -> None:
        kind, r, mark = event
        if kind == "register":
            if r in self.got or r in self.model.registry:
                return  # request ids are never used twice
            assert self.monitor.register(MonitorEntry(r, 1))
            self.model.registry.append(r)
        elif kind == "feed":  # the next transaction of the feed: r's own, or (r = 0) a foreign one
            hwm = self.monitor.high_water_mark + 1
            if r and self.model.result.get(r) == FAILED:
                r = 0  # a server never commits what it has failed
            if r:
                self._take(list(self.monitor.committed(r, 1, hwm, 0)))
                self.model.committed(r)
            self._take(list(self.monitor.advance(hwm)))
            self.model.advance(hwm)
        elif kind == "lock":
            _, resolved = self.monitor.lock_failure(r, 1, mark)
            self._take(list(resolved))
            self.model.lock_failure(r, mark)
        elif kind == "flush":
            self._take(list(self.monitor.flush_response(r, mark)))
            self.model.flush_response(r, mark)
        self.check()

    def check(self) -> None:
        assert self.got == self.model.result
        assert self.monitor.outstanding == self.model.outstanding()
        pending = [r for r in self.model.registry if r not in self.model.result]
        assert [e.seq_num for e in self.monitor.pending_entries()] == pending
        oldest = self.monitor.oldest
        assert oldest is None or oldest.pending
        waiting = [mark for mark, _ in self.model.conflicts] + [m for m, _ in self.model.flushes[:1]]
        assert self.monitor.next_release <= min(waiting, default=NEVER)


EVENTS: list[Event] = [
    *(("feed", r, 0) for r in (0, 1, 2, 3)),
    *(("lock", r, mark) for r in (1, 2, 3) for mark in (-1, 0, 1)),
    *(("flush", r, mark) for r in (1, 2, 3) for mark in (-1, 0, 1)),
]


def test_every_short_sequence_agrees_with_the_model() -> None:
    for sequence in itertools.product(EVENTS, repeat=3):
        driver = Driver()
        for r in (1, 2, 3):
            driver.apply(("register", r, 0))
        for event in sequence:
            driver.apply(event)


def test_every_interleaving_of_registering_agrees_with_the_model() -> None:
    events: list[Event] = [
        *(("register", r, 0) for r in (1, 2)),
        ("feed", 0, 0), ("feed", 1, 0), ("feed", 2, 0),
        ("lock", 1, 0), ("lock", 2, 1), ("flush", 1, 0), ("flush", 2, 1),
    ]  # fmt: skip
    for sequence in itertools.product(events, repeat=5):
        driver = Driver()
        for event in sequence:
            driver.apply(event)


random_events = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.integers(1, 12), st.just(0)),
        st.tuples(st.just("feed"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("lock"), st.integers(1, 12), st.integers(-1, 15)),
        st.tuples(st.just("flush"), st.integers(1, 12), st.integers(-1, 15)),
    ),
    max_size=60,
)


@settings(max_examples=400)
@given(random_events)
def test_random_sequences_agree_with_the_model(events: list[Event]) -> None:
    driver = Driver()
    for event in events:
        driver.apply(event)


@settings(max_examples=200)
@given(random_events)
def test_close_reports_what_is_left_once_as_closed(events: list[Event]) -> None:
    driver = Driver()
    for event in events:
        driver.apply(event)
    pending = [e.seq_num for e in driver.monitor.pending_entries()]
    resolved = driver.monitor.close()
    assert [r.entry.seq_num for r in resolved] == pending
    assert all(r.cause is Cause.CLOSED for r in resolved)
    assert driver.monitor.outstanding == 0
    assert driver.monitor.newest is None
    assert not driver.monitor.close()


def _registered(*seqs: int) -> tuple[TransactionMonitor, dict[int, MonitorEntry]]:
    monitor = TransactionMonitor()
    entries = {seq: MonitorEntry(seq, 1) for seq in seqs}
    for entry in entries.values():
        monitor.register(entry)
    return monitor, entries


def test_client_server_13_41_flush_response_waits_for_the_feed() -> None:
    monitor, entries = _registered(1)
    assert not monitor.flush_response(1, 0)  # the server's mark is 0, the feed has shown nothing yet
    assert entries[1].pending
    assert [r.cause for r in monitor.committed(1, 1, 0, 0)] == [Cause.COMMITTED]
    assert not monitor.advance(0)


def test_client_server_13_41_lock_failure_waits_for_the_feed() -> None:
    monitor, entries = _registered(1)
    told, resolved = monitor.lock_failure(1, 1, 2)
    assert told is entries[1]
    assert not resolved
    assert not monitor.advance(1)
    assert [r.cause for r in monitor.advance(2)] == [Cause.LOCK_CONFLICT]


def test_a_conflict_overtaken_by_a_flush_is_still_a_conflict() -> None:
    monitor, _ = _registered(1, 2)
    monitor.lock_failure(1, 1, 5)
    resolved = monitor.flush_response(2, -1)
    assert [(r.entry.seq_num, r.cause, r.mark) for r in resolved] == [
        (1, Cause.LOCK_CONFLICT, 5),
        (2, Cause.FLUSHED, -1),
    ]


def test_a_flush_may_name_a_tombstone() -> None:
    monitor, _ = _registered(1, 2)
    monitor.lock_failure(2, 1, -1)
    newest = monitor.newest
    assert newest is not None
    assert newest.seq_num == 2
    assert [r.entry.seq_num for r in monitor.flush_response(2, -1)] == [1]


def test_a_number_is_registered_once() -> None:
    monitor, _ = _registered(1)
    assert not monitor.register(MonitorEntry(1, 1))
    assert monitor.outstanding == 1


def test_another_generation_is_another_request() -> None:
    monitor, entries = _registered(1)
    assert not monitor.committed(1, 2, 0, 0)
    assert monitor.lock_failure(1, 2, -1) == (None, ())
    assert entries[1].pending


def test_safety_e5_another_header_is_another_client() -> None:
    """Two clients share an id and came to the same number: the other's commit says nothing about ours."""
    monitor = TransactionMonitor()
    entry = MonitorEntry(1, 1, header=7)
    monitor.register(entry)
    assert not monitor.committed(1, 1, 0, 8)
    assert entry.pending
    assert 1 in monitor
    assert [r.cause for r in monitor.committed(1, 1, 1, 7)] == [Cause.COMMITTED]
    assert 1 not in monitor


def test_abort_fails_at_once() -> None:
    monitor, _ = _registered(1, 2)
    assert [r.cause for r in monitor.abort(2)] == [Cause.NOT_SENT]
    assert not monitor.abort(2)
    assert monitor.outstanding == 1
