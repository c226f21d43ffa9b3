"""Time, as the log knows it: a reservation ends when its clock says so, not when that of an instance does.

Each partition has a clock, which counts transactions of a kind of their own. Every instance offers the next
tick when it has seen the present one in its tables for `tick_seconds`, and the lock on the clock accepts one.
So two ticks are never closer than that, whatever time the machines think it is, and every instance ends the
same reservations at the same transaction of the log. While no instance runs no time passes, and a clock is at
rest while nothing is reserved.
"""

from __future__ import annotations

import asyncio
import logging

from sqlalchemy.exc import SQLAlchemyError

from inventory.clerk import Clerk
from inventory.store import Store
from waltz_client import WaltzClientError

_log = logging.getLogger(__name__)


async def keep_time(clerk: Clerk, store: Store, partition: int, tick_seconds: float) -> None:
    """Offer the ticks of a partition until cancelled."""
    now = asyncio.get_running_loop().time
    seen, since = None, now()
    while True:
        await asyncio.sleep(tick_seconds / 10)
        try:
            tick = await asyncio.to_thread(store.clock, partition)
            if tick != seen:
                seen, since = tick, now()
            elif tick is not None and now() - since >= tick_seconds:
                await clerk.tick(partition, tick)
        except (SQLAlchemyError, WaltzClientError) as error:  # it is offered again, if it is not there yet
            _log.warning("partition %d has no next tick: %s", partition, error)
