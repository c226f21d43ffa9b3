"""Votes: prefixes, failures and the gate of ZooKeeper, against a model that counts from scratch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz_server.store.voting import Votes, VotingError

NAMES = ("a", "b", "c")


def joined(quorum: int = 2, resolved: int = -1) -> Votes:
    votes = Votes(quorum=quorum, resolved=resolved)
    for name in NAMES:
        votes.join(name, resolved)
        votes.admit(name)
    return votes


def test_majority_commits_in_order() -> None:
    votes = joined()
    for name in NAMES:
        votes.sent(name, 0, 4)
        votes.sent(name, 5, 9)
    assert not votes.stored("a", 0)
    assert votes.stored("b", 0)
    assert votes.committed == 4
    assert not votes.stored("b", 5)
    assert votes.stored("a", 5)
    assert votes.committed == 9


def test_safety_d2_a_vote_counts_only_after_all_earlier_ones() -> None:
    votes = joined()
    for name in NAMES:
        votes.sent(name, 0, 4)
        votes.sent(name, 5, 9)
    votes.stored("a", 5)
    votes.stored("b", 5)
    assert votes.committed == -1
    votes.stored("a", 0)
    assert votes.stored("b", 0)
    assert votes.committed == 9


def test_safety_d2_first_failure_ends_the_votes_of_a_replica() -> None:
    votes = joined()
    for name in NAMES:
        votes.sent(name, 0, 4)
        votes.sent(name, 5, 9)
    votes.stored("a", 0)
    votes.end("a")
    assert not votes.stored("a", 5)
    assert votes.durable("a") == 4
    votes.stored("b", 0)
    votes.stored("b", 5)
    assert votes.committed == 4  # what a stored before its failure still counts
    assert votes.live_voters == 2
    with pytest.raises(VotingError):
        votes.sent("a", 10, 11)


def test_safety_a3_a_prefix_counts_only_once_admitted() -> None:
    votes = Votes(quorum=2, resolved=-1)
    votes.join("a", -1)
    assert not votes.admit("a")
    votes.join("b", -1)
    votes.join("c", -1)
    for name in ("b", "c", "a"):  # the one with a voice comes last
        votes.sent(name, 0, 4)
        votes.stored(name, 0)
    assert votes.committed == -1
    assert not votes.has_voice("b")
    assert votes.admit("b")
    assert votes.committed == 4


def test_frames_must_continue_each_other() -> None:
    votes = joined()
    votes.sent("a", 0, 4)
    with pytest.raises(VotingError):
        votes.sent("a", 6, 7)
    with pytest.raises(VotingError):
        votes.sent("b", 1, 7)


@given(
    quorum=st.integers(1, 3),
    moves=st.lists(
        st.tuples(
            st.sampled_from(["send", "store", "end", "admit"]), st.sampled_from(NAMES), st.integers(0, 5)
        ),
        max_size=80,
    ),
)
def test_committed_equals_a_count_from_scratch(quorum: int, moves: list[tuple[str, str, int]]) -> None:
    votes = Votes(quorum=quorum, resolved=9)
    sent: dict[str, list[tuple[int, int]]] = {n: [] for n in NAMES}
    good: dict[str, set[int]] = {n: set() for n in NAMES}
    ended: set[str] = set()
    listed: set[str] = set()
    for name in NAMES:
        votes.join(name, 9)

    def prefix(name: str) -> int:
        mark = 9
        for first, last in sent[name]:
            if first not in good[name]:
                break
            mark = last
        return mark

    best = 9
    for kind, name, number in moves:
        if kind == "send" and name not in ended:
            first = sent[name][-1][1] + 1 if sent[name] else 10
            votes.sent(name, first, first + number)
            sent[name].append((first, first + number))
        elif kind == "store" and sent[name] and name not in ended:
            first = sent[name][min(number, len(sent[name]) - 1)][0]
            votes.stored(name, first)
            good[name].add(first)
        elif kind == "end":
            votes.end(name)
            ended.add(name)
        elif kind == "admit":
            votes.admit(name)
            listed.add(name)
        marks = sorted((prefix(n) for n in listed), reverse=True)
        if len(marks) >= quorum:
            best = max(best, marks[quorum - 1])
        assert votes.committed == best
        assert all(votes.durable(n) == prefix(n) for n in NAMES)
        assert votes.live_voters == len(listed - ended)


def test_who_joined_cannot_join_again_and_strangers_end_nothing() -> None:
    votes = joined()
    with pytest.raises(VotingError, match="joined twice"):
        votes.join("a", 5)
    votes.end("stranger")
    assert votes.live_voters == 3
    assert not votes.has_voice("stranger")


def test_an_answer_that_was_counted_already_counts_no_more() -> None:
    votes = joined()
    for name in NAMES:
        votes.sent(name, 0, 4)
        votes.sent(name, 5, 9)
    votes.stored("a", 0)
    assert not votes.stored("a", 0)
    assert votes.durable("a") == 4


def test_frames_of_a_replica_continue_each_other_and_end_with_it() -> None:
    votes = joined(resolved=4)
    votes.sent("a", 5, 7)
    for first, last in ((7, 9), (9, 9), (8, 7), (5, 7)):
        with pytest.raises(VotingError, match="expected 8"):
            votes.sent("a", first, last)
    votes.sent("a", 8, 8)
    votes.end("a")
    with pytest.raises(VotingError, match="ended: True"):
        votes.sent("a", 5, 5)
    with pytest.raises(VotingError, match="joined twice"):
        votes.join("b", 4)


def test_safety_d2_an_answer_to_a_frame_that_was_never_sent_counts_for_nothing() -> None:
    votes = joined()
    votes.sent("a", 0, 4)
    assert not votes.stored("a", 99)
    assert not votes.stored("b", 0)
    assert not votes.stored("a", 0)
    assert (votes.durable("a"), votes.durable("b"), votes.committed) == (4, -1, -1)
    assert not votes.stored("a", 0)  # and none counts twice
    assert votes.durable("a") == 4


def test_safety_d2_a_frame_in_the_middle_without_an_answer_holds_up_those_behind_it() -> None:
    """The last one and the first one are answered: nothing says that the one in between is stored."""
    votes = joined()
    for name in NAMES:
        for first in (0, 5, 10, 15):
            votes.sent(name, first, first + 4)
        votes.stored(name, 10)
        votes.stored(name, 0)
        assert votes.durable(name) == 4
    assert votes.committed == 4
    votes.stored("a", 5)
    assert votes.durable("a") == 14
    assert votes.stored("b", 5)
    assert votes.committed == 14


@pytest.mark.parametrize(("quorum", "committed"), [(1, 9), (2, 7), (3, 5), (4, 3), (5, 1)])
def test_committed_is_what_a_quorum_holds_whatever_its_size(quorum: int, committed: int) -> None:
    votes = Votes(quorum=quorum, resolved=-1)
    for place, name in enumerate("vwxyz"):
        votes.join(name, 2 * place + 1)
        moved = votes.admit(name)
        assert moved == (place + 1 >= quorum)
    assert votes.committed == committed


def test_who_failed_or_never_came_has_no_voice() -> None:
    votes = joined(resolved=4)
    assert votes.has_voice("a")
    votes.end("a")
    assert [votes.has_voice(name) for name in ("a", "b", "stranger")] == [False, True, False]
    assert [votes.durable(name) for name in ("a", "b", "stranger")] == [4, 4, -1]
