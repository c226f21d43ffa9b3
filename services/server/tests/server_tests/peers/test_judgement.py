"""What a server makes of its peers, as values: rules G1 and G3 to G5 of docs/safety.md."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz_protocol.types import Endpoint
from waltz_server.peers.judgement import (
    MAX_REST_SECONDS,
    MAX_SUSPECTS,
    MAX_WATCHED,
    Action,
    Challenge,
    Evict,
    PeerId,
    PeerJudgement,
    Withdraw,
)

TIMEOUT = 2.0
STEP = 0.125


def peer(server_id: int, registration: int = 0) -> PeerId:
    """The server of this id; `registration` counts how often it registered."""
    return PeerId(f"s_{server_id:05d}{registration:05d}", server_id, Endpoint("h", 8000 + server_id))


class Judge:
    """One server with its judgement, on a clock of its own; ZooKeeper does at once what it asks for."""

    def __init__(self, own_id: int, others: Iterable[int], *, watching: bool = True) -> None:
        self.now = 100.0
        self.me = peer(own_id)
        self.others = {each: peer(each) for each in others}
        self.judgement = PeerJudgement(TIMEOUT)
        self.alive = set(self.others)
        self.witnesses: dict[int, set[int]] = {}
        self.answering: set[int] = set()
        self.challenges: set[str] = set()
        self.evicted: list[tuple[float, str]] = []
        self.challenged: list[tuple[float, str]] = []
        self.register()
        if watching:
            for each in self.others.values():
                self.judgement.heard(each.name, self.now)

    def register(self) -> None:
        self.judgement.members(self.me, self.others.values(), self.now)

    def by_name(self, name: str) -> int:
        return next(each for each, found in self.others.items() if found.name == name)

    def step(self, seconds: float = STEP) -> list[Action]:
        """Time passes: those who are alive are heard, witnesses report, actions are carried out."""
        self.now += seconds
        for each in self.alive:
            if each in self.others:
                self.judgement.heard(self.others[each].name, self.now)
        for observer, suspects in self.witnesses.items():
            names = [self.others[each].name for each in suspects if each in self.others]
            if observer in self.others:
                self.judgement.reported(self.others[observer].name, names, self.now)
        actions = self.judgement.tick(self.now)
        for action in actions:
            self.carry_out(action)
        return actions

    def carry_out(self, action: Action) -> None:
        match action:
            case Challenge(name):
                self.challenged.append((self.now, name))
                self.challenges.add(name)
                self.judgement.challenged(name, self.now)
            case Withdraw(name):
                self.challenges.discard(name)
                self.judgement.withdrawn(name)
            case Evict(name):
                assert name in self.challenges
                self.challenges.discard(name)
                number = self.by_name(name)
                if number in self.answering:
                    self.judgement.answered(name, self.now)
                    return
                self.evicted.append((self.now, name))
                self.judgement.evicted(name, self.now)
                del self.others[number]
                self.register()

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.step()

    def loses(self, *numbers: int, refused: bool = False) -> None:
        """These are no longer heard from."""
        self.alive -= set(numbers)
        for number in numbers:
            if refused:
                self.judgement.refused(self.others[number].name)


def test_silence_for_the_timeout_evicts_and_not_before() -> None:
    judge = Judge(1, [2])
    judge.run(5.0)
    since = judge.now
    judge.loses(2)
    judge.run(3.0)
    ((at, name),) = judge.evicted
    assert name == peer(2).name
    assert TIMEOUT <= at - since <= TIMEOUT + 3 * STEP


def test_a_process_that_is_gone_is_evicted_at_once_but_not_without_a_challenge() -> None:
    judge = Judge(1, [2])
    since = judge.now
    judge.loses(2, refused=True)
    assert judge.step(0.01) == [Challenge(peer(2).name)]
    assert judge.step(0.02) == []
    judge.run(0.5)
    ((at, _),) = judge.evicted
    assert at - since <= 0.3


def test_safety_g1_who_has_never_answered_is_never_suspected() -> None:
    """Servers of release 0.13.2, and those that were never reached."""
    judge = Judge(1, [2, 3], watching=False)
    judge.judgement.does_not_watch(peer(2).name)
    judge.judgement.refused(peer(2).name)
    judge.judgement.refused(peer(3).name)
    judge.alive.clear()
    judge.run(60.0)
    assert judge.judgement.suspects(judge.now) == {}
    assert judge.challenged == judge.evicted == []


def test_safety_g1_the_word_of_another_server_moves_nothing_that_is_heard_from() -> None:
    judge = Judge(1, [2, 3, 4])
    judge.witnesses = {3: {2}, 4: {2}}
    judge.run(30.0)
    assert judge.challenged == judge.evicted == []


@pytest.mark.parametrize("refused", [False, True])
def test_safety_g1_one_observer_alone_moves_nothing_where_there_is_another(refused: bool) -> None:
    judge = Judge(1, [2, 3])
    judge.loses(3, refused=refused)
    judge.witnesses = {2: set()}
    judge.run(30.0)
    assert judge.challenged == judge.evicted == []
    judge.witnesses = {2: {3}}
    judge.run(3.0)
    assert [name for _, name in judge.evicted] == [peer(3).name]


def test_safety_g1_an_old_report_is_no_witness() -> None:
    judge = Judge(1, [2, 3])
    judge.witnesses = {2: {3}}
    judge.step()
    judge.witnesses = {}
    judge.run(2.0)
    judge.loses(3)
    judge.run(30.0)
    assert judge.evicted == []


@pytest.mark.parametrize("refused", [False, True])
def test_safety_g1_who_answers_the_challenge_stays(refused: bool) -> None:
    """A link is cut between two servers that both reach ZooKeeper; or a rule on our machine refuses."""
    judge = Judge(1, [2])
    judge.answering = {2}
    judge.loses(2, refused=refused)
    judge.run(600.0)
    assert judge.evicted == []


def test_safety_g4_the_rests_between_challenges_double_and_are_bounded() -> None:
    judge = Judge(1, [2])
    judge.answering = {2}
    judge.loses(2)
    judge.run(3000.0)
    times = [at for at, _ in judge.challenged]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(times) < 20
    assert all(later >= min(1.8 * earlier, MAX_REST_SECONDS) for earlier, later in itertools.pairwise(pauses))
    assert max(pauses) <= MAX_REST_SECONDS + TIMEOUT + 3 * STEP


def test_safety_g4_a_link_may_be_cut_for_months() -> None:
    judge = Judge(1, [2])
    for _ in range(2000):
        judge.judgement.answered(peer(2).name, judge.now)
        judge.now += MAX_REST_SECONDS + 1
    assert judge.judgement.suspects(judge.now)


def test_safety_g4_a_server_that_freezes_again_and_again_is_left_to_its_session() -> None:
    judge = Judge(1, [2])
    for registration in range(1, 9):
        judge.loses(2)
        judge.run(4.0)
        judge.others[2] = peer(2, registration)  # it is back, with another descriptor
        judge.register()
        judge.alive.add(2)
        judge.run(1.0)
    assert len(judge.evicted) <= 4


def test_safety_g4_a_rest_for_silence_does_not_protect_a_process_that_is_gone() -> None:
    judge = Judge(1, [2])
    judge.loses(2)
    judge.run(3.0)
    assert len(judge.evicted) == 1
    judge.others[2] = peer(2, 1)
    judge.register()
    judge.alive.add(2)
    judge.run(0.5)
    judge.loses(2, refused=True)
    judge.run(1.0)
    assert len(judge.evicted) == 2


def test_safety_g5_who_did_not_run_blames_nobody() -> None:
    """A virtual machine that was suspended: nobody was heard from, whoever was there."""
    judge = Judge(1, [2, 3, 4])
    judge.run(5.0)
    for _ in range(10):
        judge.now += 30.0
        assert judge.judgement.tick(judge.now) == []
        judge.run(1.0)
    assert judge.challenged == judge.evicted == []


def test_safety_g5_a_challenge_that_was_made_before_a_pause_has_its_whole_time_after_it() -> None:
    judge = Judge(1, [2])
    judge.loses(2)
    judge.run(1.25)
    assert judge.challenges == {peer(2).name}
    judge.now += 10.0
    assert judge.judgement.tick(judge.now) == [Withdraw(peer(2).name)]  # it is not silent for us
    judge.now += STEP
    assert not [each for each in judge.judgement.tick(judge.now) if isinstance(each, Evict)]


def test_safety_g3_silence_of_most_evicts_nobody() -> None:
    judge = Judge(1, [2, 3, 4, 5])
    judge.loses(3, 4, 5)
    judge.witnesses = {2: {3, 4, 5}}
    judge.run(60.0)
    assert judge.evicted == []


def test_safety_g3_one_after_another() -> None:
    judge = Judge(1, [2, 3, 4, 5, 6])
    judge.loses(4, 5, 6, refused=True)
    judge.witnesses = {2: {4, 5, 6}, 3: {4, 5, 6}}
    judge.run(10.0)
    times = [at for at, _ in judge.evicted]
    assert len(times) == 3
    assert all(later - earlier >= 0.25 * TIMEOUT for earlier, later in itertools.pairwise(times))


def test_the_next_one_judges_the_judge_and_nobody_else_does() -> None:
    for own_id in (2, 3, 4):
        judge = Judge(own_id, {1, 2, 3, 4} - {own_id})
        judge.loses(1, refused=True)
        judge.witnesses = {each: {1} for each in (2, 3, 4) if each != own_id}
        judge.run(5.0)
        assert [name for _, name in judge.evicted] == ([peer(1).name] if own_id == 2 else [])


def test_when_the_first_two_are_gone_the_third_judges_both() -> None:
    judge = Judge(3, [1, 2, 4, 5])
    judge.loses(1, 2, refused=True)
    judge.witnesses = {4: {1, 2}, 5: {1, 2}}
    judge.run(5.0)
    assert {name for _, name in judge.evicted} == {peer(1).name, peer(2).name}


def test_a_server_that_is_not_registered_judges_nobody() -> None:
    judge = Judge(1, [2])
    judge.judgement.members(None, judge.others.values(), judge.now)
    judge.loses(2, refused=True)
    judge.run(5.0)
    assert judge.judgement.watched() == []
    assert judge.challenged == []


def test_another_process_at_the_address_says_nothing_for_the_registration_before_it() -> None:
    """What was known of the old one does not count against the new one."""
    judge = Judge(1, [2])
    judge.loses(2, refused=True)
    judge.others[2] = peer(2, 1)
    judge.register()
    judge.run(30.0)  # the new one has not been reached yet
    assert judge.evicted == []
    assert judge.challenged == []


def test_old_servers_are_neither_watched_nor_counted() -> None:
    judge = Judge(5, [1, 2, 3, 4])
    for old in (1, 2):
        judge.judgement.does_not_watch(peer(old).name)
    assert {each.server_id for each in judge.judgement.watched()} == {3, 4}
    judge.alive = set()
    judge.judgement.refused(peer(3).name)
    judge.judgement.refused(peer(4).name)
    judge.run(5.0)
    assert {each for _, each in judge.evicted} == {peer(3).name, peer(4).name}


def test_reports_are_bounded() -> None:
    judge = Judge(1, range(2, 200))
    judge.alive.clear()
    judge.now += 10.0
    assert len(judge.judgement.watched()) == MAX_WATCHED
    assert len(judge.judgement.suspects(judge.now)) == MAX_SUSPECTS


# -- all of it together


class World:
    """Some servers that judge one another; ZooKeeper is one set of challenges and of descriptors."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.frozen: set[int] = set()
        self.dead: set[int] = set()
        self.cut: set[tuple[int, int]] = set()
        self.registered = {each: peer(each) for each in range(1, count + 1)}
        self.judgements = {each: PeerJudgement(TIMEOUT) for each in self.registered}
        self.challenges: set[str] = set()
        self.evictions: list[tuple[float, int, int]] = []
        self._members()

    def _members(self) -> None:
        for own, judgement in self.judgements.items():
            others = [each for number, each in self.registered.items() if number != own]
            judgement.members(self.registered.get(own), others, self.now)

    def runs(self, number: int) -> bool:
        return number not in self.frozen and number not in self.dead

    def step(self) -> None:
        self.now += STEP
        for number, each in self.registered.items():
            if self.runs(number):
                self.challenges.discard(each.name)  # it answers
        for own, judgement in self.judgements.items():
            if not self.runs(own):
                continue
            for target in judgement.watched():
                number = target.server_id
                if (own, number) in self.cut or (number, own) in self.cut:
                    continue
                if self.runs(number):
                    judgement.heard(target.name, self.now)
                    if own in self.registered:
                        self.judgements[number].reported(
                            self.registered[own].name, judgement.suspects(self.now), self.now
                        )
                elif number in self.dead:
                    judgement.refused(target.name)
        for own, judgement in self.judgements.items():
            if self.runs(own):
                for action in judgement.tick(self.now):
                    self._do(own, judgement, action)

    def _do(self, own: int, judgement: PeerJudgement, action: Action) -> None:
        name = action.name
        match action:
            case Challenge():
                self.challenges.add(name)
                judgement.challenged(name, self.now)
            case Withdraw():
                self.challenges.discard(name)
                judgement.withdrawn(name)
            case Evict():
                number = next((n for n, each in self.registered.items() if each.name == name), None)
                if name not in self.challenges or number is None:
                    judgement.answered(name, self.now)
                    return
                assert own in self.registered
                self.challenges.discard(name)
                del self.registered[number]
                self.evictions.append((self.now, own, number))
                judgement.evicted(name, self.now)
                self._members()


@given(
    st.integers(2, 6),
    st.sets(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=20),
    st.integers(10, 200),
)
def test_safety_g1_whatever_links_are_cut_nobody_who_reaches_zookeeper_is_evicted(
    count: int, cut: set[tuple[int, int]], steps: int
) -> None:
    world = World(count)
    for _ in range(8):
        world.step()
    world.cut = cut
    for _ in range(steps):
        world.step()
    assert world.evictions == []


@pytest.mark.parametrize("count", range(2, 7))
@pytest.mark.parametrize("kind", ["dead", "frozen"])
def test_whoever_fails_is_evicted_in_time_and_nobody_else(count: int, kind: str) -> None:
    for victim in range(1, count + 1):
        world = World(count)
        for _ in range(16):
            world.step()
        since = world.now
        (world.dead if kind == "dead" else world.frozen).add(victim)
        for _ in range(32):
            world.step()
        assert [number for _, _, number in world.evictions] == [victim]
        limit = 0.5 if kind == "dead" else TIMEOUT + 4 * STEP
        assert world.evictions[0][0] - since <= limit


@pytest.mark.parametrize("count", range(4, 8))
@pytest.mark.parametrize("kind", ["dead", "frozen"])
def test_two_that_fail_at_once_are_both_evicted(count: int, kind: str) -> None:
    """As in one rack. Who was watched by the two judges alone had no witness when one of them failed too."""
    for victims in itertools.combinations(range(1, count + 1), 2):
        world = World(count)
        for _ in range(16):
            world.step()
        (world.dead if kind == "dead" else world.frozen).update(victims)
        for _ in range(40):
            world.step()
        assert sorted(number for _, _, number in world.evictions) == list(victims)


@given(st.integers(2, 6), st.data())
def test_safety_g3_somebody_always_stays_and_silence_takes_less_than_all(
    count: int, data: st.DataObject
) -> None:
    world = World(count)
    for _ in range(16):
        world.step()
    everybody = st.sampled_from(range(1, count + 1))
    for _ in range(data.draw(st.integers(1, 4))):
        world.frozen |= data.draw(st.sets(everybody, max_size=2))
        for _ in range(data.draw(st.integers(1, 30))):
            world.step()
        if data.draw(st.booleans()):
            world.frozen.clear()
            for number in range(1, count + 1):  # an evicted one registers again
                if number not in world.registered:
                    world.registered[number] = peer(number, len(world.evictions))
            world._members()
    assert world.registered
    for (earlier, _, _), (later, _, _) in itertools.pairwise(world.evictions):
        assert later - earlier >= 0.25 * TIMEOUT or earlier == later
