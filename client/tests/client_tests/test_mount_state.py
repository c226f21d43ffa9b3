"""The states of a partition, and what leads from one to another."""

from collections.abc import Sequence

import pytest

from waltz_client._internal.stream.mount_state import MountEvent as Event
from waltz_client._internal.stream.mount_state import MountState as State
from waltz_client._internal.stream.mount_state import after


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], State.INACTIVE),
        ([Event.ACTIVATED], State.STARTING),
        ([Event.ACTIVATED, Event.ATTACHED, Event.DETACHED, Event.OUTDATED], State.STARTING),
        ([Event.ACTIVATED, Event.START_KNOWN], State.MOUNTING),
        ([Event.ACTIVATED, Event.START_KNOWN, Event.ATTACHED, Event.READY], State.MOUNTED),
        ([Event.ACTIVATED, Event.START_KNOWN, Event.ATTACHED, Event.READY, Event.DETACHED], State.MOUNTING),
        ([Event.ACTIVATED, Event.START_KNOWN, Event.ATTACHED, Event.READY, Event.OUTDATED], State.MOUNTING),
        ([Event.ACTIVATED, Event.START_KNOWN, Event.ATTACHED, Event.CLIENT_AHEAD], State.AHEAD),
        ([Event.ACTIVATED, Event.START_KNOWN, Event.CLIENT_AHEAD, Event.DETACHED], State.AHEAD),
        ([Event.ACTIVATED, Event.START_KNOWN, Event.CLIENT_AHEAD, Event.READY], State.MOUNTED),
        ([Event.ACTIVATED, Event.START_KNOWN, Event.CLIENT_AHEAD, Event.ATTACHED], State.MOUNTING),
        (
            [Event.ACTIVATED, Event.START_KNOWN, Event.CLIENT_AHEAD, Event.DEACTIVATED, Event.ACTIVATED],
            State.STARTING,
        ),
    ],
)
def test_a_way_through_the_states(events: Sequence[Event], state: State) -> None:
    found = State.INACTIVE
    for event in events:
        found = after(found, event)
    assert found is state


@pytest.mark.parametrize("state", State)
def test_the_end_of_the_client_ends_every_state(state: State) -> None:
    assert after(state, Event.CLOSED) is State.CLOSED


def test_safety_e2_only_a_partition_that_asks_for_a_mount_can_be_mounted() -> None:
    """Appends are sent in MOUNTED only; nothing leads there but the answer to a mount."""
    into = {(state, event) for state in State for event in Event if _leads(state, event) is State.MOUNTED}
    assert into == {
        (State.MOUNTING, Event.READY),
        (State.AHEAD, Event.READY),
        (State.MOUNTED, Event.ACTIVATED),
    }


@pytest.mark.parametrize("state", [state for state in State if state is not State.STARTING])
def test_a_place_is_only_given_to_a_partition_that_has_none(state: State) -> None:
    with pytest.raises(RuntimeError, match=f"START_KNOWN cannot happen to a partition that is {state.value}"):
        after(state, Event.START_KNOWN)


def _leads(state: State, event: Event) -> State | None:
    try:
        return after(state, event)
    except RuntimeError:
        return None
