"""The closing of a managed ZooKeeper to others: what is to be done now. `model.login` decides. Pure."""

from __future__ import annotations

from waltz_operator.api.parts import ZooKeeperAuthentication
from waltz_operator.model.actions import Blocked, MarkZooKeeper
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import Closure
from waltz_operator.plan.builder import Decision
from waltz_operator.resources.login import Level


def check_login(facts: Facts, decision: Decision) -> None:
    """Fill in `invalid` when the credentials in use are lost: nobody is given others, or none."""
    lost = facts.login.lost
    if lost:
        text = (
            f"Secret {facts.desired.zookeeper_set}-auth {lost}: restore it; a running pod of a server or storage node has "
            "the credentials in /etc/waltz/zookeeper-auth/auth"
        )
        decision.invalid = (Reason.CREDENTIALS_LOST, text)


def mark_zookeeper(facts: Facts, decision: Decision) -> None:
    """The next step of closing or opening, when it is proven to lock nobody out; and before a tree is made,
    the root is closed."""
    login = facts.login
    mark = login.mark
    if mark is not None:
        decision.actions.append(MarkZooKeeper(mark))
        decision.soon()
        return
    closing = login.wanted is ZooKeeperAuthentication.DIGEST and login.closure in (
        Closure.OPEN,
        Closure.CHANGING,
    )
    if closing and login.waits_for:
        decision.block(Blocked("closing of ZooKeeper", Reason.EXTERNAL_NODE, login.waits_for))


def closed_first(facts: Facts) -> bool:
    """Whether a tree that is to be made waits until ZooKeeper is closed to others."""
    login = facts.login
    if login.wanted is not ZooKeeperAuthentication.DIGEST or login.waits_for:
        return False
    return login.closure is not Closure.CLOSED or login.memory.login is not Level.OWN
