"""Whom a server watches, and what it knows of those whom it does not watch."""

import pytest

from server_tests.peers.test_judgement import Judge, peer
from waltz_server.peers.judgement import MAX_WATCHED


@pytest.mark.parametrize("servers", range(2, 12))
def test_everybody_is_watched_by_three_and_watches_few(servers: int) -> None:
    watched_by: dict[int, int] = dict.fromkeys(range(1, servers + 1), 0)
    for own_id in watched_by:
        judge = Judge(own_id, set(watched_by) - {own_id})
        watched = judge.judgement.watched()
        assert own_id not in {each.server_id for each in watched}
        assert len(watched) <= (5 if own_id > 3 else MAX_WATCHED)
        for each in watched:
            watched_by[each.server_id] += 1
    assert all(count >= min(3, servers - 1) for count in watched_by.values())


def test_in_a_cluster_of_any_size_the_second_watches_the_one_that_judges() -> None:
    """And the other way round: nobody else can take the part of the judge."""
    servers = range(1, 2 * MAX_WATCHED)
    for own_id, other in ((1, 2), (2, 1)):
        watched = Judge(own_id, set(servers) - {own_id}).judgement.watched()
        assert len(watched) == MAX_WATCHED
        assert other in {each.server_id for each in watched}


def test_who_was_watched_is_known_after_a_moment_without_a_registration() -> None:
    """Its session ends for a moment, and the other server dies with it."""
    judge = Judge(1, {2, 3})
    judge.judgement.members(None, judge.others.values(), judge.now)
    judge.register()
    judge.alive.discard(2)
    judge.witnesses = {3: {2}}
    for _ in range(32):
        judge.step()
    assert [name for _, name in judge.evicted] == [peer(2).name]


def test_nobody_is_suspected_who_is_not_watched() -> None:
    """A server took the place of a judge that had lost its session, and suspected for good whom it had
    watched until that came back."""
    judge = Judge(4, {1, 2, 3, 5, 6, 7, 8}, watching=False)
    first = judge.others.pop(1)
    for change in (None, first):
        if change is not None:
            judge.others[1] = change
        judge.register()
        watched = {each.name for each in judge.judgement.watched()}
        judge.alive = {number for number, each in judge.others.items() if each.name in watched}
        for _ in range(64):
            judge.step()
    assert judge.alive == {1, 2, 3, 5, 6}
    assert judge.judgement.suspects(judge.now) == {}
