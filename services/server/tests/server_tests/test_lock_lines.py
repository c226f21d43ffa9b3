"""Lines of appends that wait for locks, against a model that looks at everybody each time."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from waltz_server.partition.lock_lines import LockLines

_LOCKS = st.frozensets(st.integers(1, 4), max_size=3)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(1, 3), _LOCKS),
        st.tuples(st.just("leave"), st.booleans(), st.just(None)),
        st.tuples(st.just("commit"), st.integers(0, 3), st.just(None)),
        st.tuples(st.just("hold"), st.just(0), st.just(None)),
        st.tuples(st.just("come back"), st.integers(1, 3), _LOCKS),
        st.tuples(st.just("give up"), st.integers(1, 3), st.just(None)),
    ),
    max_size=60,
)


@dataclass
class _Model:
    """Everybody in the order of arrival; whoever has nobody before it with its client or a lock of it, and no
    mark on a lock of it, is ready."""

    waiting: list[tuple[int, int, frozenset[int]]] = field(default_factory=list)
    """Number (-1: a turn that is kept), client, locks."""
    marked: set[int] = field(default_factory=set)

    def ready(self) -> set[int]:
        found = set()
        for place, (number, client, locks) in enumerate(self.waiting):
            before = self.waiting[:place]
            if number == -1 or any(
                (client == other and one != -1) or locks & theirs for one, other, theirs in before
            ):
                continue
            if not locks & self.marked:
                found.add(number)
        return found

    def give_up(self, client: int) -> None:
        self.waiting = [one for one in self.waiting if one[:2] != (-1, client)]


@settings(max_examples=400)
@given(_STEPS)
def test_who_is_ready_is_whom_nobody_is_before(steps: list[tuple[str, int, frozenset[int] | None]]) -> None:
    marked: set[int] = set()
    lines: LockLines[int] = LockLines(marked)
    model = _Model(marked=marked)
    in_flight: list[frozenset[int]] = []
    for number, (what, argument, locks) in enumerate(steps):
        if what == "join":
            assert locks is not None
            concerned = any(
                (argument == client and one != -1) or locks & theirs for one, client, theirs in model.waiting
            )
            assert lines.concern(argument, locks) is concerned
            lines.join(number, argument, locks)
            model.waiting.append((number, argument, locks))
        elif what == "leave" and lines.ready:
            waiter = lines.ready.popleft()
            if argument:  # admitted
                marked.update(waiter.locks)
                in_flight.append(frozenset(waiter.locks))
            lines.leave(waiter)
            model.waiting = [one for one in model.waiting if one[0] != waiter.item]
        elif what == "commit" and in_flight:
            gone = in_flight.pop(argument % len(in_flight))
            marked.difference_update(gone)
            lines.unmarked(gone)
        elif what == "hold" and lines.ready:
            waiter = lines.ready.popleft()
            lines.hold(waiter)
            model.give_up(waiter.client_id)
            model.waiting = [one if one[0] != waiter.item else (-1, one[1], one[2]) for one in model.waiting]
        elif what == "come back":
            assert locks is not None
            place = next((n for n, one in enumerate(model.waiting) if one[:2] == (-1, argument)), -1)
            alone = not any(one[1] == argument and one[0] != -1 for one in model.waiting)
            takes_it = place >= 0 and alone and bool(locks) and locks <= model.waiting[place][2]
            assert lines.come_back(number, argument, tuple(locks)) is takes_it
            if takes_it:
                model.waiting[place] = (number, argument, model.waiting[place][2])
            else:
                model.give_up(argument)
        elif what == "give up":
            lines.give_up(argument)
            model.give_up(argument)
        assert {waiter.item for waiter in lines.ready} == model.ready()
        assert lines.waiting == len(model.waiting)
    assert sorted(lines.dissolve()) == sorted(number for number, _, _ in model.waiting if number != -1)
    assert (lines.waiting, len(lines.ready)) == (0, 0)
    assert not lines.concern(1, range(5))


def test_each_lock_counts_once_however_often_an_append_names_it() -> None:
    marked = {5}
    lines: LockLines[str] = LockLines(marked)
    lines.join("first", 1, (5, 5))
    lines.join("second", 2, (5, 6, 6))
    marked.clear()
    lines.unmarked((5,))
    assert [waiter.item for waiter in lines.ready] == ["first"]
    lines.leave(lines.ready.popleft())
    assert [waiter.item for waiter in lines.ready] == ["second"]
