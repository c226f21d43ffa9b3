"""The lease alone: when the ZooKeeper session may be over by the own clock (rule D8). On simulated time."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from waltz_cluster.lease import SessionLease
from waltz_cluster.store import SessionEvent, SessionState, ZooKeeperStore

pytestmark = pytest.mark.looptime


@dataclass
class Session:
    """What the lease reads of its store, and what it reported."""

    state: SessionState = SessionState.CONNECTED
    last_contact: float = 0.0
    session_timeout_seconds: float = 6.0
    losses: list[str] = field(default_factory=list)

    def lease(self) -> SessionLease:
        self.contact()
        lease = SessionLease(cast(ZooKeeperStore, self), self.losses.append)
        lease.start()
        return lease

    def contact(self) -> None:
        self.last_contact = asyncio.get_running_loop().time()


async def test_safety_d8_a_contact_that_is_too_old_renews_nothing() -> None:
    session = Session()
    lease = session.lease()
    await asyncio.sleep(6.5)
    assert not lease.renew()
    assert session.losses == ["no contact with ZooKeeper for a whole session timeout"]
    session.state = SessionState.SUSPENDED
    session.contact()
    assert not lease.renew()
    session.state = SessionState.CONNECTED
    assert lease.renew()
    assert lease.valid
    lease.close()


async def test_safety_d8_each_loss_is_reported_once_and_at_once() -> None:
    session = Session()
    lease = session.lease()
    for loss in (1, 2):
        for _ in range(2):
            lease.session_changed(SessionEvent(SessionState.LOST, 1, session.last_contact))
            assert session.losses == ["the ZooKeeper session is lost"] * loss
        await asyncio.sleep(10.0)
        session.contact()
        assert lease.renew()
    lease.close()
    assert len(session.losses) == 2
