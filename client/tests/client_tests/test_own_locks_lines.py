"""The lines of locks alone: no two that exclude each other are on their way, and everybody's turn comes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from waltz_client._internal.append.own_locks import MAX_LOCKS, OwnLocks


class Model:
    """Users of `OwnLocks` that do at random what users do."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.locks: OwnLocks[int] = OwnLocks(lambda item, mark: self.called.append(item))
        self.called: list[int] = []
        self.wants: dict[int, tuple[list[int], list[int], list[int]]] = {}
        self.sent: dict[int, tuple[list[int], list[int], list[int]]] = {}
        self.came: list[int] = []
        self.ended: Counter[str] = Counter()

    def some(self) -> list[int]:
        return self.rng.sample(range(4), self.rng.choice((0, 0, 1, 1, 2)))

    def enter(self, item: int) -> None:
        write, read, append = self.wants[item]
        if not self.locks.enter(item, write, read, append):
            self.ended["waited"] += 1
            return
        for other_write, _, other_append in self.sent.values():
            assert not {*other_write, *other_append} & {*write, *read}, "both are on their way"
        self.sent[item] = self.wants[item]

    def step(self, item: int) -> None:
        match self.rng.choice(
            ("new", "new", "turn", "turn", "settled", "settled", "lost", "withdraw", "late")
        ):
            case "new":
                self.wants[item] = self.some(), self.some(), self.some()
                self.enter(item)
            case "turn" if self.called:
                self.take_turn(self.called.pop(0))
            case "settled" if self.sent:
                self.end(self.rng.choice(list(self.sent)))
            case "lost" if self.sent:
                loser = self.rng.choice(list(self.sent))
                del self.sent[loser]
                self.locks.lost(loser)
                self.take_turn(loser)
            case "late" if self.called:
                self.locks._pass_by(self.locks._waiting[self.called[0]])
                self.take_turn(self.called.pop(0))
            case "withdraw" if self.wants:
                gone = self.rng.choice(list(self.wants))
                self.locks.withdraw(gone)
                for known in (self.wants, self.sent):
                    known.pop(gone, None)
                self.called = [one for one in self.called if one != gone]

    def take_turn(self, item: int) -> None:
        if self.rng.random() < 0.2:
            self.wants[item] = self.some(), self.some(), self.some()
        self.enter(item)

    def end(self, item: int) -> None:
        del self.sent[item], self.wants[item]
        self.locks.settled(item, item)
        self.ended["settled"] += 1

    def run_out(self) -> None:
        """All end when everybody does what is expected."""
        for _ in range(10_000):
            if self.called:
                self.enter(self.called.pop(0))
            elif self.sent:
                self.end(next(iter(self.sent)))
            else:
                break
        assert not self.wants, f"{self.wants} wait for nobody"
        assert not self.locks._lines
        assert not self.locks._marked
        assert not self.locks._waiting
        assert not self.locks._passed_by


@pytest.mark.parametrize("seed", range(60))
async def test_no_two_are_on_their_way_and_everybody_s_turn_comes(seed: int) -> None:
    model = Model(seed)
    for item in range(300):
        model.step(item)
    model.run_out()
    assert model.ended["waited"] > 10
    assert model.ended["settled"] > 20


async def test_nobody_waits_in_dissolved_lines() -> None:
    """A decision may come when its client is being closed: who gives nobody a turn must not let it wait."""
    called: list[str] = []
    locks: OwnLocks[str] = OwnLocks(lambda item, mark: called.append(item))
    assert locks.enter("first", [1], [], [])
    assert not locks.enter("second", [1], [], [])
    assert locks.dissolve() == ["second"]
    assert locks.enter("third", [1], [], [])
    locks.withdraw("first")
    assert not called


async def test_turns_come_in_the_order_of_arrival_and_locks_that_are_appended_wait_for_no_one() -> None:
    called: list[tuple[str, int]] = []
    locks: OwnLocks[str] = OwnLocks(lambda item, mark: called.append((item, mark)))
    assert locks.enter("a", [1], [], [])
    assert locks.enter("x", [], [], [2])
    assert locks.enter("y", [], [], [2]), "append locks are never checked"
    assert not locks.enter("b", [1], [], [])
    assert not locks.enter("c", [], [1], [])
    assert not locks.enter("d", [3], [], [1]), "it may not overtake who waits"
    locks.settled("a", 7)
    assert called == [("b", 7)]
    assert locks.enter("b", [1], [], [])
    locks.lost("b")
    assert called == [("b", 7)], "it has its turn already"
    assert locks.enter("b", [1], [], [])
    locks.settled("b", 9)
    assert called[1:] == [("c", 9)]
    assert locks.enter("c", [], [1], [])
    assert called[2:] == [("d", 9)], "a lock that is only read marks nothing"


async def test_nobody_who_comes_later_or_has_changed_its_mind_passes_those_who_wait() -> None:
    called: list[str] = []
    locks: OwnLocks[str] = OwnLocks(lambda item, mark: called.append(item))
    assert locks.enter("a", [1], [], [])
    assert locks.enter("x", [2], [], [])
    assert not locks.enter("b", [1], [], [])
    assert not locks.enter("c", [2], [], [])
    locks.settled("a")
    assert not locks.enter("late", [1], [], []), "the turn is kept for b"
    locks.settled("x")
    assert called == ["b", "c"]
    assert not locks.enter("b", [2], [], []), "that is the turn of c"
    assert called == ["b", "c", "late"]
    assert locks.enter("c", [2], [], [])
    locks.settled("c")
    assert called == ["b", "c", "late", "b"]


async def test_who_has_very_many_locks_is_sent_without_regard() -> None:
    locks: OwnLocks[str] = OwnLocks(lambda item, mark: None)
    assert locks.enter("a", [1], [], [])
    assert locks.enter("b", range(MAX_LOCKS + 1), [], [])
    assert not locks.enter("c", range(MAX_LOCKS), [], [])
