"""How the connector learns the addresses of a host name.

By default the event loop asks the system, in the one executor of the process. A lookup that nobody waits for
any longer keeps its thread until the name server answers or the system gives up, so a process that works for
several parties gives each its own way (`looked_up_by`), and a silent name server holds up its own party
alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""Host name -> addresses, at least one; OSError, ValueError. May be cancelled."""

_LOOKUP: ContextVar[Lookup | None] = ContextVar("waltz_name_lookup", default=None)


@contextmanager
def looked_up_by(lookup: Lookup) -> Iterator[None]:
    """Within it, and in the tasks that begin within it, the connector asks `lookup`."""
    token = _LOOKUP.set(lookup)
    try:
        yield
    finally:
        _LOOKUP.reset(token)


async def addresses_of(host: str) -> Sequence[str]:
    """What to connect to, one after the other: the host itself where it is an address, or where the loop is
    to look it up."""
    lookup = _LOOKUP.get()
    if lookup is None or _is_address(host):
        return (host,)
    return await lookup(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
