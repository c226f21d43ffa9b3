"""Challenges to servers that leave in another way than by an eviction: what a judgement withdraws."""

from server_tests.peers.test_judgement import STEP, Judge, peer
from waltz_server.peers.judgement import Challenge, Evict, Withdraw


def test_the_challenge_of_a_server_that_leaves_on_its_own_is_withdrawn_once() -> None:
    judge = Judge(1, [2, 3])
    judge.witnesses = {3: {2}}
    judge.run(1.0)
    judge.loses(2, refused=True)
    judge.step(0.01)
    assert judge.challenges == {peer(2).name}
    gone = judge.others.pop(2)
    judge.register()  # its session has ended
    assert judge.step() == [Withdraw(gone.name)]
    assert judge.challenges == set()
    judge.run(5.0)
    assert len(judge.challenged) == 1
    assert judge.step() == []


def test_a_challenge_whose_outcome_is_not_known_is_withdrawn_once_its_server_has_left() -> None:
    judge = Judge(1, [2, 3])
    judge.witnesses = {3: {2}}
    judge.run(1.0)
    judge.loses(2, refused=True)
    gone = judge.others.pop(2)
    judge.now += STEP
    judge.judgement.reported(peer(3).name, [gone.name], judge.now)
    assert judge.judgement.tick(judge.now) == [Challenge(gone.name)]
    judge.judgement.unknown(gone.name)
    judge.register()
    for _ in range(2):
        judge.now += STEP
        assert judge.judgement.tick(judge.now) == [Withdraw(gone.name)]
        judge.judgement.unknown(gone.name)
    judge.step()
    assert judge.step() == []


def test_nothing_is_withdrawn_after_an_eviction_that_the_members_showed_first() -> None:
    judge = Judge(1, [2])
    judge.loses(2, refused=True)
    judge.step(0.01)
    judge.now += STEP
    (action,) = judge.judgement.tick(judge.now)
    assert isinstance(action, Evict)
    judge.others.clear()
    judge.register()
    judge.judgement.evicted(peer(2).name, judge.now)
    assert judge.step() == []


def test_what_is_to_be_withdrawn_comes_after_what_is_urgent() -> None:
    """One action is carried out at a time."""
    judge = Judge(1, [2, 3, 4])
    judge.witnesses = {4: {2, 3}}
    judge.run(1.0)
    judge.loses(3, refused=True)
    judge.step(0.01)
    gone = judge.others.pop(3)
    judge.register()
    judge.loses(2, refused=True)
    assert judge.step(0.01) == [Challenge(peer(2).name), Withdraw(gone.name)]
