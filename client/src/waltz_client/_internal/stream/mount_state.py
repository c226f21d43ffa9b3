"""The states of a partition on its way to being mounted, and every transition between them. Pure.

Whether a partition is *attached* to a connection is not a state of its own: connections come and go in each
of them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class MountState(enum.Enum):
    """States of a partition, each with what holds in it. `received` is the last transaction of the
    partition that this client has seen in order."""

    INACTIVE = "inactive"
    """The client takes no part in it. Not attached; `received` is not known; waiting fails with
    PartitionInactiveError."""
    STARTING = "starting"
    """The position of the first mount is not known yet: nothing is sent. A task asks for it, from the first
    connection on."""
    MOUNTING = "mounting"
    """`received` is known. Attached: a mount request is on its way, or a timer will send it. Not attached:
    it is sent with the next connection."""
    MOUNTED = "mounted"
    """Attached, and the server said READY on this connection to a mount at `received`: the only state in
    which appends and feed requests are sent, and in which there is a `Mount`."""
    AHEAD = "ahead"
    """The server said that its log ends before `received`: waiting fails with ClientAheadError, and the
    mount is asked for again, slowly and with each connection."""
    CLOSED = "closed"
    """The end of the client. Not attached; waiting fails with ClientClosedError."""


class MountEvent(enum.Enum):
    """What happens to a partition."""

    ACTIVATED = "the client takes part"
    START_KNOWN = "the position of the first mount is known"
    ATTACHED = "a connection to its server can be used"
    DETACHED = "the connection was lost, or the partition moved away from it"
    OUTDATED = "the server may not know the mount: it has to be asked for again"
    READY = "the server said READY"
    CLIENT_AHEAD = "the server said CLIENT_AHEAD"
    DEACTIVATED = "the client takes no part any longer"
    CLOSED = "the client closes"


_S, _E = MountState, MountEvent

_AFTER: Mapping[MountState, Mapping[MountEvent, MountState]] = {
    _S.INACTIVE: {_E.ACTIVATED: _S.STARTING, _E.CLOSED: _S.CLOSED},
    # Without a position there is nothing to mount at, whatever becomes of connections.
    _S.STARTING: {
        _E.ACTIVATED: _S.STARTING,
        _E.START_KNOWN: _S.MOUNTING,
        _E.ATTACHED: _S.STARTING,
        _E.DETACHED: _S.STARTING,
        _E.OUTDATED: _S.STARTING,
        _E.DEACTIVATED: _S.INACTIVE,
        _E.CLOSED: _S.CLOSED,
    },
    _S.MOUNTING: {
        _E.ACTIVATED: _S.MOUNTING,
        _E.ATTACHED: _S.MOUNTING,
        _E.DETACHED: _S.MOUNTING,
        _E.OUTDATED: _S.MOUNTING,
        _E.READY: _S.MOUNTED,
        _E.CLIENT_AHEAD: _S.AHEAD,
        _E.DEACTIVATED: _S.INACTIVE,
        _E.CLOSED: _S.CLOSED,
    },
    # No answer to a mount is possible: requests end with the answer, and new ones are sent in MOUNTING.
    _S.MOUNTED: {
        _E.ACTIVATED: _S.MOUNTED,
        _E.ATTACHED: _S.MOUNTING,
        _E.DETACHED: _S.MOUNTING,
        _E.OUTDATED: _S.MOUNTING,
        _E.DEACTIVATED: _S.INACTIVE,
        _E.CLOSED: _S.CLOSED,
    },
    # Until a server says otherwise, or a new connection may lead to one that has more of the log.
    _S.AHEAD: {
        _E.ACTIVATED: _S.AHEAD,
        _E.ATTACHED: _S.MOUNTING,
        _E.DETACHED: _S.AHEAD,
        _E.OUTDATED: _S.AHEAD,
        _E.READY: _S.MOUNTED,
        _E.CLIENT_AHEAD: _S.AHEAD,
        _E.DEACTIVATED: _S.INACTIVE,
        _E.CLOSED: _S.CLOSED,
    },
    # A partition is flushed before it is deactivated, and the client may be closed meanwhile.
    _S.CLOSED: {_E.DEACTIVATED: _S.CLOSED, _E.CLOSED: _S.CLOSED},
}


def after(state: MountState, event: MountEvent) -> MountState:
    """The state that an event leads to; RuntimeError when it cannot happen in this one."""
    try:
        return _AFTER[state][event]
    except KeyError:
        raise RuntimeError(f"{event.name} cannot happen to a partition that is {state.value}") from None
