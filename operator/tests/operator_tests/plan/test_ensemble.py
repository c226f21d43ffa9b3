"""The managed ZooKeeper grows one member at a time: explored, with pods that crash, are deleted, or do not
come up, StatefulSets that are deleted, looks that are old, and wishes that change.

A pod runs with the number of members of the template it was made of. The judge takes the numbers that are in
force at one time: a majority of each must meet a majority of every other, or two leaders could acknowledge
what the other never sees, and an empty newcomer could win over those who have the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import pytest

from operator_tests.plan.cluster import desired, facts, kube
from waltz_operator.model import ensemble
from waltz_operator.model.actions import DeletePod
from waltz_operator.model.desired import Desired
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import KubeView, ObjectKey, ObjectView, PodView, PVCView, StatefulSetView
from waltz_operator.plan.cluster import decide

SET = "c-zookeeper"


class Pod(NamedTuple):
    """A server: the members that it knows (0: as an earlier release made it), and whether its process
    runs."""

    members: int
    running: bool = False


class World(NamedTuple):
    """`template`: members that the StatefulSet says, 0 of an earlier release, None when it is gone;
    `replicas`: its number of pods. `claims`: how many there are. `luck`: mishaps left. `recorded`: in the
    status."""

    wanted: int
    template: int | None
    replicas: int
    claims: int
    pods: tuple[Pod | None, ...]
    luck: int
    recorded: int = 0


def known(world: World, pod: Pod) -> int:
    """The members that a pod's file has: that of an earlier release had as many as there were then."""
    return pod.members or EARLIER


EARLIER = 1
MOST = 5


def serves(world: World, number: int) -> bool:
    """Whether the server runs, and so do a majority of the members that it knows: each of them knows it, or
    takes it as a newcomer beside a majority of its own."""
    pod = world.pods[number]
    if pod is None or not pod.running:
        return False
    mine = known(world, pod)
    if mine == 1:
        return True
    peers = [
        one
        for one in range(mine)
        if (other := world.pods[one]) is not None and other.running and known(world, other) > 1
    ]
    return len(peers) >= mine // 2 + 1


def view(world: World) -> KubeView:
    """What an observer sees."""
    pods = {
        f"{SET}-{n}": PodView(
            "uid",
            "zookeeper",
            f"t{pod.members}",
            serves(world, n),
            running_since=0.0 if pod.running else None,
            members=pod.members,
        )
        for n, pod in enumerate(world.pods)
        if pod is not None
    }
    base = kube()
    sets = dict(base.statefulsets)
    objects = dict(base.objects)
    if world.template is not None:
        sets[SET] = StatefulSetView(
            "z", "", "", f"t{world.template}", world.replicas, 0, True, members=world.template
        )
        objects[ObjectKey("StatefulSet", SET)] = ObjectView("z", "", f"set-{world.template}-{world.replicas}")
    claims = {f"data-{SET}-{n}": PVCView("v", 1, 1, component="zookeeper") for n in range(world.claims)}
    for name in claims:
        objects[ObjectKey("PersistentVolumeClaim", name)] = ObjectView("v", "", "claim")
    return replace(
        base, objects=objects, statefulsets=sets, pods={**base.pods, **pods}, pvcs={**base.pvcs, **claims}
    )


def specification(world: World) -> Desired:
    names = tuple(f"data-{SET}-{n}" for n in range(world.wanted))
    return replace(desired(), zookeeper_claims=names, zookeeper_set=SET, zookeeper_members=world.recorded)


class Plan(NamedTuple):
    """What a pass does that saw a world: the StatefulSet's members and template, the pods that are restarted,
    and the number for the status."""

    members: int
    template: int
    restarted: tuple[int, ...]
    recorded: int


def planned(seen: World) -> Plan:
    """By a look at `seen`."""
    wanted, look = specification(seen), view(seen)
    members = ensemble.members(wanted, look)
    kept = seen.template == 0 and members == seen.replicas  # the template of an earlier release is kept
    template = 0 if kept else members
    key = ObjectKey("StatefulSet", SET)
    objects = (Rendered(key, {}, f"set-{template}-{members}", f"t{template}"),)
    decision = decide(replace(facts(look), desired=wanted), objects)
    restarted = tuple(
        int(action.name.rpartition("-")[2])
        for action in decision.actions
        if isinstance(action, DeletePod) and action.name.startswith(SET)
    )
    return Plan(members, template, restarted, ensemble.to_record(wanted, look))


def operator(world: World, seen: World, plan: Plan) -> Iterator[World]:
    """Each write of a pass that was planned on a look at `seen`, as if the operator died after it."""
    members, template, restarted, recorded = plan
    for claims in range(world.claims + 1, members + 1):
        world = world._replace(claims=claims)
        yield world
    if (seen.template, seen.replicas) != (template, members):
        pods = tuple(
            pod or (Pod(template) if number < members else None) for number, pod in enumerate(world.pods)
        )
        yield world._replace(template=template, replicas=members, pods=pods)
    for number in restarted:
        if world.pods[number] == seen.pods[number] and world.template is not None:
            yield world._replace(pods=put(world.pods, number, Pod(world.template)))
    if world.recorded == seen.recorded != recorded:  # the status is written under its version
        yield world._replace(recorded=recorded)


def put(pods: tuple[Pod | None, ...], number: int, pod: Pod | None) -> tuple[Pod | None, ...]:
    return (*pods[:number], pod, *pods[number + 1 :])


def nature(world: World) -> Iterator[World]:
    """A pod comes up; for luck: a process or a pod dies, the StatefulSet is deleted with or without its
    pods, a person wants more."""
    for number, pod in enumerate(world.pods):
        if pod is not None and not pod.running:
            yield world._replace(pods=put(world.pods, number, pod._replace(running=True)))
        elif pod is None and world.template is not None and number < world.replicas:
            yield world._replace(pods=put(world.pods, number, Pod(world.template)))
    if not world.luck:
        return
    less = world._replace(luck=world.luck - 1)
    for number, pod in enumerate(world.pods):
        if pod is not None and pod.running:
            yield less._replace(pods=put(world.pods, number, pod._replace(running=False)))
            if world.template is not None:
                yield less._replace(pods=put(world.pods, number, Pod(world.template)))
    if world.template is not None:
        yield less._replace(template=None, pods=(None,) * MOST)
        yield less._replace(template=None)
    if world.wanted < MOST:
        yield less._replace(wanted=world.wanted + 2)


def judge(world: World) -> None:
    """A majority of every number in force, and of the next pod to be made, meets one of every other."""
    numbers = {known(world, pod) for pod in world.pods if pod is not None}
    if world.template is not None:
        numbers.add(world.template or EARLIER)
    for one, two in combinations(sorted(numbers), 2):
        assert not apart(one, two), f"{one} and {two} members are in force at the same time: {world}"


def apart(one: int, two: int) -> bool:
    """Whether a majority of the one number and one of the other have no server in common."""
    few, many = one // 2 + 1, two // 2 + 1
    return any(
        not set(first) & set(second)
        for first in combinations(range(one), few)
        for second in combinations(range(two), many)
    )


def explore(first: World, *, old_looks: bool = True) -> int:
    """Every state that can be reached; each is judged. How many there are."""
    found, todo = {first}, [first]
    before: dict[World, World] = {}
    plans: dict[World, Plan] = {}

    def passed(world: World, seen: World) -> Iterator[World]:
        look = seen._replace(luck=0)  # which nobody sees
        plan = plans.get(look)
        if plan is None:
            plan = plans[look] = planned(look)
        return operator(world, seen, plan)

    while todo:
        world = todo.pop()
        judge(world)
        following = [*passed(world, world), *nature(world)]
        if old_looks and world in before and before[world].template == world.template:
            following += passed(world, before[world])
        for one in following:
            if one not in found:
                found.add(one)
                before[one] = world
                todo.append(one)
    return len(found)


def begin(wanted: int, *, luck: int, template: int = 0, number: int = 1) -> World:
    """A running ensemble, of an earlier release when `template` is 0."""
    pods = tuple(Pod(template, True) if n < number else None for n in range(MOST))
    return World(wanted, template, number, number, pods, luck)


@pytest.mark.timeout(600)
def test_majorities_of_all_numbers_in_force_meet() -> None:
    states = explore(begin(3, luck=4)) + explore(begin(5, luck=3)) + explore(begin(5, luck=3, template=1))
    print(f"\nstates of the growing ensemble: {states:,}")
    assert states > 5_000


@pytest.mark.parametrize(("wanted", "template"), [(3, 0), (5, 0), (5, 1)])
def test_it_becomes_what_is_wanted_when_nothing_happens(wanted: int, template: int) -> None:
    world = begin(wanted, luck=0, template=template)
    for _ in range(200):
        following = [*nature(world), *operator(world, world, planned(world))]
        if not following:
            break
        world = following[0]
    assert (world.template, world.replicas) == (wanted, wanted)
    assert all(pod == Pod(wanted, True) for pod in world.pods[:wanted])


def test_an_ensemble_of_an_earlier_release_is_left_as_it_is() -> None:
    world = begin(1, luck=0)._replace(recorded=1)
    assert not list(operator(world, world, planned(world)))
    assert ensemble.members(specification(world), view(world)) == 1


def test_a_new_ensemble_begins_with_what_is_wanted_and_a_larger_one_never_shrinks() -> None:
    nothing = World(3, None, 0, 0, (None,) * MOST, 0)
    assert ensemble.members(specification(nothing), view(nothing)) == 3
    left = nothing._replace(wanted=1, claims=3)
    assert ensemble.members(specification(left), view(left)) == 3, "its data are of three"


ANY: Callable[..., bool] = lambda *_: True  # noqa: E731


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("complete", ANY),
        ("_present", lambda wanted, look: view_members(look)),
        ("members", lambda wanted, look: len(wanted.zookeeper_claims)),
    ],
)
def test_planted_bugs_are_found(
    name: str, bug: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next member before the last one is known to all; as if it were new when the StatefulSet is gone;
    all at once."""
    monkeypatch.setattr(ensemble, name, bug)
    with pytest.raises(AssertionError, match="in force at the same time"):
        explore(begin(5, luck=2))


def view_members(look: KubeView) -> int:
    """Without the claims."""
    found = look.statefulsets.get(SET)
    return (found.members or found.replicas) if found is not None else 0
