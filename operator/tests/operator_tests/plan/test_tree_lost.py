"""ZooKeeper's data are lost: nothing is changed, but that servers stop when a person asks for it, since a
tree is brought back while none works."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan.cluster import facts, rendered
from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_operator.model.actions import ApplyObject
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import ObjectKey
from waltz_operator.plan.cluster import decide

SERVERS = ObjectKey("Deployment", "c-server")


def wanted(replicas: int) -> tuple[Rendered, ...]:
    """Everything has another template, and there are to be so many servers."""
    found = rendered(template="t2", servers="t2")
    return tuple(
        replace(one, body={"spec": {"replicas": replicas}}) if one.key == SERVERS else one for one in found
    )


@pytest.mark.parametrize("tree", [NoTree(), BrokenTree("half of it")])
@pytest.mark.parametrize(("replicas", "applied"), [(0, [SERVERS]), (2, [])])
def test_servers_stop_when_none_is_wanted_and_nothing_else_changes(
    tree: NoTree | BrokenTree, replicas: int, applied: list[ObjectKey]
) -> None:
    decision = decide(replace(facts(), tree=tree), wanted(replicas))
    assert decision.invalid is not None
    assert decision.invalid[0].value == "TreeLost"
    assert [one.key for one in decision.actions if isinstance(one, ApplyObject)] == applied
    assert len(decision.actions) == len(applied)


def test_not_while_it_is_paused() -> None:
    found = replace(facts(), tree=NoTree())
    paused = replace(found, desired=replace(found.desired, paused=True))
    assert decide(paused, wanted(0)).actions == []
