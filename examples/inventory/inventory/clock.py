"""Time, as the log knows it: a reservation ends when its clock says so, not when that of an instance does.

Each partition has a clock, which counts transactions of a kind of their own. Every instance offers the next
tick when it has seen the present one in its tables for `tick_seconds`, and the lock on the clock accepts one.
So two ticks are never closer than that, whatever time the machines think it is, and every instance ends the
same reservations at the same place in the log. While no instance runs no time passes, and a clock rests while
nothing is reserved.
"""

from __future__ import annotations

import asyncio
import logging

from sqlalchemy.exc import SQLAlchemyError

from inventory.clerk import Clerk
from inventory.store import Store
from waltz_client import WaltzClientError

_log = logging.getLogger(__name__)


async def keep_time(clerk: Clerk, store: Store, tick_seconds: float) -> None:
    """Offer ticks until cancelled."""
    loop = asyncio.get_running_loop()
    seen: dict[int, tuple[int, float]] = {}
    while True:
        await asyncio.sleep(tick_seconds / 10)
        try:
            ticks = await asyncio.to_thread(store.clocks_in_use)
        except SQLAlchemyError as error:
            _log.warning("the clocks cannot be read: %s", error)
            continue
        now = loop.time()
        seen = {
            partition: seen[partition] if seen.get(partition, (-1,))[0] == tick else (tick, now)
            for partition, tick in ticks.items()
        }
        for partition, (tick, since) in seen.items():
            if now - since >= tick_seconds:
                try:
                    await clerk.tick(partition, tick)
                except WaltzClientError as error:  # it is offered again, if nobody else's was accepted
                    _log.warning("no tick in partition %d: %s", partition, error)
